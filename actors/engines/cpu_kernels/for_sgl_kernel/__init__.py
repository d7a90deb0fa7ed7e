"""On the PYTHONPATH of servers without a CPU build of sgl_kernel."""
