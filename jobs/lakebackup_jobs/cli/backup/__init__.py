"""`lakebackup backup …`: take a backup. One file for each verb."""
