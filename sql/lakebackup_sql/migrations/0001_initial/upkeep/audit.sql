CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  actor STRING NOT NULL COMMENT 'account and host',
  action STRING NOT NULL COMMENT 'what was done',
  subject STRING NOT NULL COMMENT 'to which thing',
  detail STRING NOT NULL COMMENT 'more, as JSON text'
)
USING delta
COMMENT 'Who did what'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'at,action,subject'
)
