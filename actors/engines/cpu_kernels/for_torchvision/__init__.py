"""On the PYTHONPATH of servers without torchvision."""
