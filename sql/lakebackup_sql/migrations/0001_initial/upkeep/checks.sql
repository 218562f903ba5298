CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  check_id STRING NOT NULL COMMENT 'one run of verify',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  backup_id STRING COMMENT 'the backup, when it is known',
  destination STRING NOT NULL COMMENT 'id of the place that holds the object',
  path STRING COMMENT 'relative to the destination\'s root',
  mode STRING NOT NULL COMMENT 'stat, hash, decode or restore; keys: a look at key filters, which no restore depends on',
  outcome STRING NOT NULL COMMENT 'ok, missing, orphan, changed, damaged or unconfirmed',
  detail STRING COMMENT 'more, as JSON text'
)
USING delta
COMMENT 'What verify found'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'check_id,at,backup_id,outcome'
)
