"""`lakebackup backup …`: take a backup. One file per verb."""
