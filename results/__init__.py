"""What was seen, and everything that is computed from it."""
