CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  drill_id STRING NOT NULL COMMENT 'id of the run',
  at BIGINT NOT NULL COMMENT 'when it began, microseconds since 1970 UTC',
  source STRING NOT NULL COMMENT 'name of the source',
  backup_id STRING NOT NULL COMMENT 'the restore point',
  to_ts BIGINT COMMENT 'the moment restored to, in the domain of the source; null: the end of the backup, of an engine',
  seed BIGINT COMMENT 'what the restore point was drawn with; null: it was named',
  target STRING NOT NULL COMMENT 'what was restored into: dir or delta',
  entries BIGINT COMMENT 'entries in the files to restore; null: nothing could be planned',
  files BIGINT COMMENT 'files to restore',
  bytes BIGINT COMMENT 'their size',
  predicted_ms BIGINT COMMENT 'how long the restore was expected to take; null: nothing was known',
  real_ms BIGINT COMMENT 'how long it took; null: it did not end well',
  outcome STRING NOT NULL COMMENT 'ok, different (restored, and not what was backed up, or the check found rows), failed (not restored)',
  detail STRING COMMENT 'what was restored; what differs, or the error',
  actor STRING NOT NULL COMMENT 'account and host'
)
USING delta
COMMENT 'Restores on trial: what each one brought back'
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
