CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup',
  source STRING NOT NULL COMMENT 'name of the cluster',
  group_id STRING NOT NULL COMMENT 'the consumer group',
  protocol STRING NOT NULL COMMENT 'classic or consumer',
  state STRING NOT NULL COMMENT 'of the group then: stable, empty, ...',
  scope STRING NOT NULL COMMENT 'topic',
  epoch STRING COMMENT 'id of the topic; null: it was gone',
  region STRING NOT NULL COMMENT 'partition number, as text',
  position BIGINT NOT NULL COMMENT 'next offset that the group reads',
  leader_epoch INT COMMENT 'as the group committed it',
  metadata STRING COMMENT 'what the group stored with the offset',
  ts BIGINT NOT NULL COMMENT 'instant taken, in ms'
)
USING delta
COMMENT 'What consumer groups had committed at a backup'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,group_id,scope,region,backup_id',
  'delta.constraints.position_positive' = 'position >= 0'
)
