CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the cluster',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  actor STRING NOT NULL COMMENT 'account and host',
  patterns STRING COMMENT 'regular expressions of topics, a JSON array; null: the policy names none from then on'
)
USING delta
COMMENT 'Which topics the policy of a source owns: each change'
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
