"""Flags that verbs share, and how their texts become values."""
