ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  runner STRING COMMENT 'what ran its tasks: spark, or local (the process that took it); null: not recorded'
)
