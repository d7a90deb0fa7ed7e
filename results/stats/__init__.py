"""Intervals, quantiles and answers from plain numbers: what they were measured on is for the callers to know."""
