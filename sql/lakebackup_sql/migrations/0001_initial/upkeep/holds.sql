CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup',
  source STRING NOT NULL COMMENT 'name of the cluster',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  actor STRING NOT NULL COMMENT 'account and host',
  until_ts BIGINT COMMENT 'kept until then, ms since 1970 UTC; null: forever',
  reason STRING NOT NULL COMMENT 'why it is kept, or released',
  released BOOLEAN NOT NULL COMMENT 'true: it is not held from then on'
)
USING delta
COMMENT 'Backups that are kept whatever the policy says: each change'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,backup_id,at',
  'delta.constraints.instant' = 'at >= 0'
)
