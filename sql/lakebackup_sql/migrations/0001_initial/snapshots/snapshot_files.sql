CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the source',
  scope STRING NOT NULL COMMENT 'table',
  region STRING NOT NULL COMMENT 'tablet',
  name STRING NOT NULL COMMENT 'path of the file within the tablet\'s folder of the snapshot',
  role STRING NOT NULL COMMENT 'data, meta, schema or config',
  backup_id STRING NOT NULL COMMENT 'the backup that first found the file so',
  added_in BIGINT NOT NULL COMMENT 'number of that backup',
  bytes BIGINT COMMENT 'size of the file; null: not known, so it never counts as unchanged',
  mtime_ms BIGINT NOT NULL COMMENT 'when the file was last changed, ms since 1970 UTC',
  mode INT NOT NULL COMMENT 'permission bits of the file',
  links INT NOT NULL COMMENT 'hard links that the file had then',
  sha256 STRING COMMENT 'of the file, lower hex; null: not known',
  destination STRING NOT NULL COMMENT 'id of the place that holds the bytes',
  path STRING NOT NULL COMMENT 'the object that holds them, relative to the destination\'s root',
  position BIGINT NOT NULL COMMENT 'where they begin in that object, in bytes'
)
USING delta
COMMENT 'Files of snapshots, a row each from the backup on that first found one so; rows of backups without a row in backups do not count'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,name,added_in,backup_id,path',
  'delta.constraints.place' = 'position >= 0 AND added_in >= 1',
  'delta.constraints.bytes_positive' = 'bytes IS NULL OR bytes >= 0',
  'delta.constraints.path_relative' = 'path NOT LIKE \'/%\' AND path NOT LIKE \'%..%\''
)
