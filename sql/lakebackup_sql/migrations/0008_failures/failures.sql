CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the source',
  source_kind STRING NOT NULL COMMENT 'what it is of, as in backups',
  run STRING NOT NULL COMMENT 'what was run: backup, follow, full (of a change feed), import, merge, compact, prune, truncate',
  started_at BIGINT NOT NULL COMMENT 'when it began, microseconds since 1970 UTC',
  at BIGINT NOT NULL COMMENT 'when it ended, microseconds since 1970 UTC',
  error STRING NOT NULL COMMENT 'kind of the error',
  message STRING NOT NULL COMMENT 'first line of its text, without secrets',
  exit_code INT NOT NULL COMMENT 'what the command ends with; 0: upkeep ended well after it had failed',
  actor STRING NOT NULL COMMENT 'account and host'
)
USING delta
COMMENT 'Runs that ended in an error'
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
