"""Checks a person's SELECT before an engine sees it, and writes it for each engine."""
