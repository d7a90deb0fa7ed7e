"""On the PYTHONPATH of servers without triton."""
