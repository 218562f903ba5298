"""Verbs for the keys of lakebackup, `key create`, `list` and `test`. One file for each verb."""
