ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  actor STRING COMMENT 'account and host; null: not recorded'
)
