"""Verbs for the keys and the recipients of lakebackup, `key create` and others. One file for each verb."""
