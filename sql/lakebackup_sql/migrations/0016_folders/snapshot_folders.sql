CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the source',
  scope STRING NOT NULL COMMENT 'table',
  region STRING NOT NULL COMMENT 'tablet',
  name STRING NOT NULL COMMENT 'path of the folder within the tablet\'s folder of the snapshot; empty: that folder itself',
  backup_id STRING NOT NULL COMMENT 'the backup that first has the folder so',
  added_in BIGINT NOT NULL COMMENT 'number of that backup',
  mode INT COMMENT 'permission bits of the folder; null: the folder is gone',
  mtime_ms BIGINT COMMENT 'when the folder was last changed, ms since 1970 UTC; null: the folder is gone'
)
USING delta
COMMENT 'Folders of snapshots: a row for each backup in which one is new, changed or gone; rows of backups without a row in backups do not count'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,name,added_in,backup_id'
)
