CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'backup of the queues',
  source STRING NOT NULL COMMENT 'name of the engine',
  transaction_id STRING NOT NULL COMMENT 'id of the transaction, as its messages have it',
  scope STRING NOT NULL COMMENT 'topic of the queue',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits',
  region STRING NOT NULL COMMENT 'partition number, as text',
  first_position BIGINT NOT NULL COMMENT 'offset of its first message in the partition',
  first_tid BIGINT NOT NULL COMMENT 'tid of that message',
  entries BIGINT NOT NULL COMMENT 'its messages in the partition'
)
USING delta
COMMENT 'Transactions that were open when a backup of queues ended'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,backup_id,transaction_id,scope,region,first_tid',
  'delta.constraints.counted' = 'entries >= 1'
)
