"""Restores of a change feed to any covered moment."""
