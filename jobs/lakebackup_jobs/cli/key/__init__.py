"""Verbs for the keys of lakebackup, `key create`, `list`, `test` and `rotate`. One file for each verb."""
