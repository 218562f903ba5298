ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  files BIGINT COMMENT 'files of the backup that this row stands for, in place of a row for each, path being -; null: it is one file\'s'
)
