CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the task, which is its source',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  actor STRING NOT NULL COMMENT 'account and host',
  state STRING NOT NULL COMMENT 'running, paused, stopped or complete',
  settings STRING NOT NULL COMMENT 'JSON: feed, filters, limits of a flush; no secrets',
  detail STRING COMMENT 'why a task paused itself'
)
USING delta
COMMENT 'Tasks that capture change feeds: each change of the state one should be in'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,at,state',
  'delta.constraints.instant' = 'at >= 0'
)
