ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  open_since BIGINT COMMENT 'time in ms of the first record behind end_position that an open transaction hid; -1: it has none; null: nothing was hidden'
)
