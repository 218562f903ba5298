ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  complete_ts BIGINT COMMENT 'the last instant, in ms, up to which an open transaction hid nothing; -1: not known; null: the end of the backup'
)
