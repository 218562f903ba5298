"""Verbs that maintain backups, such as `prune`, `merge`, `verify` and `policy`. One file for each verb."""
