"""Static checks of a draft and target pair: pure functions from a context to findings, one theme a module."""
