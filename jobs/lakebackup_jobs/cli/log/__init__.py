"""`lakebackup log …`: capture a change feed without an end. One file a verb."""
