"""Verbs that keep backups: fewer, larger, as long as a policy says. One file a verb."""
