"""Flags that verbs share, and the parsers of their values."""
