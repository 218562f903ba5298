ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  key_id STRING COMMENT 'id of the data key of the object that holds the bytes; null: it is not encrypted'
)
