"""`lakebackup archive …`: archives as cbbackup writes them. One file a verb."""
