ALTER TABLE IDENTIFIER(:table) ADD COLUMNS (
  ctime_ns BIGINT COMMENT 'when the system last changed the file\'s inode, ns since 1970 UTC; null: not recorded, too new to rely on, or a hard link of a checkpoint',
  inode BIGINT COMMENT 'number of the file in its file system; null: not recorded'
)
