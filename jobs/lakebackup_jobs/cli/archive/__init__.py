"""`lakebackup archive …`: archives in cbbackup's format. One file for each verb."""
