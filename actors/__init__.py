"""How one configuration is run and measured somewhere: GPU groups, engines, load."""
