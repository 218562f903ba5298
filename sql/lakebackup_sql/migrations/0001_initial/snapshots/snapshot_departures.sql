CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the source',
  scope STRING NOT NULL COMMENT 'table',
  region STRING NOT NULL COMMENT 'tablet',
  name STRING NOT NULL COMMENT 'path of the file within the tablet\'s folder of the snapshot',
  added_in BIGINT NOT NULL COMMENT 'of its row in snapshot_files',
  gone_in BIGINT NOT NULL COMMENT 'number of the backup that found the file gone, or not as it was',
  gone_by STRING NOT NULL COMMENT 'that backup'
)
USING delta
COMMENT 'The ends of the lifetimes of files of snapshots; rows of backups without a row in backups do not count'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,name,added_in,gone_in,gone_by',
  'delta.constraints.lifetime' = 'added_in < gone_in'
)
