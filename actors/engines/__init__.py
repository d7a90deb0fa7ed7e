"""Engines: a real SGLang server under a guard process, or a server that already runs."""
