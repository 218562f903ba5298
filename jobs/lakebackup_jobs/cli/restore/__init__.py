"""`lakebackup restore …`: restore data. One file for each verb."""
