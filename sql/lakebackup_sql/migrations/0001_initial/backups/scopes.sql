CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup',
  source STRING NOT NULL COMMENT 'name of the cluster',
  scope STRING NOT NULL COMMENT 'topic',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits: another one is another history',
  regions INT NOT NULL COMMENT 'number of partitions',
  settings STRING NOT NULL COMMENT 'every setting of the topic, as JSON text',
  replication INT NOT NULL COMMENT 'replicas a partition',
  generation INT NOT NULL COMMENT 'how often a compacted topic was rewritten from its start'
)
USING delta
COMMENT 'Each topic as it was at a backup'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,epoch,backup_id',
  'delta.constraints.regions_positive' = 'regions >= 0'
)
