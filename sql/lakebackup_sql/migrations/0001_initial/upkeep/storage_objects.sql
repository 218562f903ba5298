CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  check_id STRING NOT NULL COMMENT 'one run of verify',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  destination STRING NOT NULL COMMENT 'id of the place that holds the object',
  path STRING NOT NULL COMMENT 'relative to the destination\'s root',
  bytes BIGINT NOT NULL COMMENT 'size in bytes',
  modified_ms BIGINT NOT NULL COMMENT 'last change, ms since 1970 UTC'
)
USING delta
COMMENT 'What verify saw in the storage'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'check_id,path'
)
