CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'backup of the queues',
  source STRING NOT NULL COMMENT 'name of the engine',
  first_tid BIGINT COMMENT 'least tid of its messages; null: it has none',
  last_tid BIGINT NOT NULL COMMENT 'it restores everything up to this tid',
  snapshot_id STRING COMMENT 'of a full: the backup of the engine\'s snapshot',
  restore_id STRING COMMENT 'the restore that it continues; null: none',
  carried BIGINT NOT NULL COMMENT 'messages at its start, of transactions open at the full before',
  open_transactions BIGINT NOT NULL COMMENT 'transactions open at its end'
)
USING delta
COMMENT 'State of an engine that a backup of its queues restores'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,last_tid,first_tid,backup_id',
  'delta.constraints.counted' = 'carried >= 0 AND open_transactions >= 0'
)
