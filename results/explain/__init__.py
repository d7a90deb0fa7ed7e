"""From observations measured anywhere to verdicts that claim no more than their evidence."""
