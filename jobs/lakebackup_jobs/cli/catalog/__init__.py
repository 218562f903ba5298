"""`lakebackup catalog …`: maintain the catalog's tables. One file per verb."""
