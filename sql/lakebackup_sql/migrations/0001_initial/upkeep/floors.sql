CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  prune_id STRING NOT NULL COMMENT 'the prune',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  source STRING NOT NULL COMMENT 'name of the cluster',
  scope STRING NOT NULL COMMENT 'topic',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits: another one is another history',
  region STRING NOT NULL COMMENT 'partition number, as text',
  low_position BIGINT NOT NULL COMMENT 'first position that can still be restored',
  generation INT NOT NULL COMMENT 'first generation that can still be restored',
  reason STRING NOT NULL COMMENT 'why it was raised'
)
USING delta
COMMENT 'From where on a region can still be restored'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,prune_id'
)
