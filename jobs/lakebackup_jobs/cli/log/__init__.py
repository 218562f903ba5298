"""`lakebackup log …`: capture a change feed continuously. One file for each verb."""
