"""Load: prompts, a client and the measurement of one cell."""
