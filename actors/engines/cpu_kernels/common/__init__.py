"""On the PYTHONPATH of servers that use any stand-in."""
