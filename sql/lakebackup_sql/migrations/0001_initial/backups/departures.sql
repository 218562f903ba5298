CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  destination STRING NOT NULL COMMENT 'id of the place that holds the object',
  path STRING NOT NULL COMMENT 'relative to the destination\'s root',
  backup_id STRING NOT NULL COMMENT 'the backup that wrote it',
  added_in BIGINT NOT NULL COMMENT 'number of that backup',
  gone_in BIGINT NOT NULL COMMENT 'number of the first backup that found it gone from the source',
  source STRING NOT NULL COMMENT 'name of the source',
  scope STRING NOT NULL COMMENT 'topic or table',
  epoch STRING NOT NULL COMMENT 'identity of the history',
  region STRING NOT NULL COMMENT 'partition or tablet, as text',
  bytes BIGINT NOT NULL COMMENT 'size of the object',
  entries BIGINT NOT NULL COMMENT 'number of records',
  sha256 STRING NOT NULL COMMENT 'of the object, lower hex'
)
USING delta
COMMENT 'Data files that left their source\'s file set: the ends of their lifetimes'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,added_in,gone_in,path',
  'delta.constraints.lifetime' = 'added_in < gone_in'
)
