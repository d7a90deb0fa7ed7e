"""What may be run: settings, layouts, rules and what checkpoints declare. Pure, no engine imported."""
