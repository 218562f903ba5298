CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the cluster',
  at BIGINT NOT NULL COMMENT 'when a backup looked, microseconds since 1970 UTC',
  scope STRING NOT NULL COMMENT 'topic; empty: there was none'
)
USING delta
COMMENT 'Topics that a cluster had and that neither a policy nor a backup of the source held, each time they changed'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,at'
)
