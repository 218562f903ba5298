CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'backup of the queues',
  source STRING NOT NULL COMMENT 'name of the engine',
  scope STRING NOT NULL COMMENT 'topic of the queue',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits',
  region STRING NOT NULL COMMENT 'partition number, as text',
  no_transaction_position BIGINT NOT NULL COMMENT 'offset from which every transaction open at the backup\'s end is seen whole',
  last_tid BIGINT COMMENT 'greatest tid seen in the partition; null: none'
)
USING delta
COMMENT 'From where on partitions of queues must be read'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,epoch,backup_id',
  'delta.constraints.positive' = 'no_transaction_position >= 0'
)
