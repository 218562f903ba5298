CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  version INT NOT NULL COMMENT 'schema version reached',
  name STRING NOT NULL COMMENT 'name of the migration',
  applied_at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC'
)
USING delta
COMMENT 'Migrations that this catalog has gone through'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'version'
)
