ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  codec STRING COMMENT 'how the file is stored: none, or zstd; null: none',
  stored_bytes BIGINT COMMENT 'bytes that it takes in the object; null: as many as the file has'
)
