"""One module for each command; heavy imports are inside the functions."""
