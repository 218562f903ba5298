CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  restore_id STRING NOT NULL COMMENT 'the restore',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  source STRING NOT NULL COMMENT 'name of the cluster',
  scope STRING COMMENT 'topic',
  region STRING COMMENT 'partition number, as text',
  state STRING NOT NULL COMMENT 'running, region_done, complete or failed',
  target STRING NOT NULL COMMENT 'where to',
  from_ts BIGINT COMMENT 'records after this instant; null: no bound',
  to_ts BIGINT COMMENT 'records up to this instant; null: no bound',
  selection STRING NOT NULL COMMENT 'the SELECT that chose the files',
  position BIGINT COMMENT 'next source position to restore',
  entries BIGINT COMMENT 'records so far',
  bytes BIGINT COMMENT 'bytes so far',
  detail STRING COMMENT 'more, as JSON text'
)
USING delta
COMMENT 'Progress of restores, append-only: of a restore, scope and region the last row counts'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'restore_id,at,source,scope'
)
