CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  source STRING NOT NULL COMMENT 'name of the cluster',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  actor STRING NOT NULL COMMENT 'account and host',
  full_schedule STRING COMMENT 'when fulls are taken: daily 02:30, every 6h, five fields of cron; null: no schedule',
  full_every_ms BIGINT COMMENT 'longest time from one full to the next by that schedule',
  incremental_schedule STRING COMMENT 'when incrementals are taken; null: no schedule',
  incremental_every_ms BIGINT COMMENT 'longest time from one incremental to the next by that schedule',
  incremental_kind STRING NOT NULL COMMENT 'kind of the scheduled incrementals: differential or cumulative',
  level INT NOT NULL COMMENT 'level of the scheduled incrementals',
  window_days INT COMMENT 'recovery window: restore points of the last so many days are kept; null: no such limit',
  redundancy INT COMMENT 'the newest so many usable fulls are kept, with all that depends on them; null: no such limit',
  min_redundancy INT NOT NULL COMMENT 'prune never leaves fewer usable fulls than these',
  note STRING COMMENT 'free text',
  removed BOOLEAN NOT NULL COMMENT 'true: the source has no policy from then on'
)
USING delta
COMMENT 'How often sources are backed up and how long that is kept: each change of a policy'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,at',
  'delta.constraints.limits' = 'level >= 1 AND min_redundancy >= 1 AND (window_days IS NULL OR window_days >= 0) AND (redundancy IS NULL OR redundancy >= 1)'
)
