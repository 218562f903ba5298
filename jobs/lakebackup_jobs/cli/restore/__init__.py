"""`lakebackup restore …`: bring data back. One file a verb."""
