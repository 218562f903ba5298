CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  restore_id STRING NOT NULL COMMENT 'id of the restore',
  at BIGINT NOT NULL COMMENT 'when it was done, microseconds since 1970 UTC',
  actor STRING NOT NULL COMMENT 'account and host',
  source STRING NOT NULL COMMENT 'name of the engine',
  backup_id STRING NOT NULL COMMENT 'the last backup it restored, whole or in part',
  full_id STRING NOT NULL COMMENT 'the full it began with',
  whole BOOLEAN NOT NULL COMMENT 'true: it reached the end of backup_id',
  last_tid BIGINT NOT NULL COMMENT 'the engine had everything up to this tid',
  cluster STRING NOT NULL COMMENT 'id of the Kafka cluster it wrote into',
  scope STRING NOT NULL COMMENT 'topic of the queue',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits',
  region STRING NOT NULL COMMENT 'partition number, as text',
  base_position BIGINT NOT NULL COMMENT 'the messages that follow the full begin at this offset',
  end_position BIGINT NOT NULL COMMENT 'offset after the last restored message'
)
USING delta
COMMENT 'Restores of an engine, a row a partition of its queues'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,at,scope,epoch,region,restore_id',
  'delta.constraints.ordered' = 'base_position <= end_position'
)
