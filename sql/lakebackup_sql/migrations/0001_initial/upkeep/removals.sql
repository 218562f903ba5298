CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  prune_id STRING NOT NULL COMMENT 'the prune',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  source STRING NOT NULL COMMENT 'name of the cluster',
  destination STRING NOT NULL COMMENT 'id of the place that held the object',
  path STRING NOT NULL COMMENT 'relative to the destination\'s root',
  backup_id STRING NOT NULL COMMENT 'the backup that wrote it',
  scope STRING NOT NULL COMMENT 'topic',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits: another one is another history',
  region STRING NOT NULL COMMENT 'partition number, as text',
  bytes BIGINT NOT NULL COMMENT 'size of the object',
  reason STRING NOT NULL COMMENT 'why it was no longer needed'
)
USING delta
COMMENT 'Data files that were pruned'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,path,prune_id'
)
