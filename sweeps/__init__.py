"""What to run next and when to stop: spec, study, loop and the command line."""
