ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  host STRING COMMENT 'machine that it was done on; null: not recorded',
  command STRING COMMENT 'the command line, secrets masked; null: not recorded, or done by another program through the library',
  outcome STRING COMMENT 'ok, or the error that it ended with, secrets masked; null: not recorded'
)
