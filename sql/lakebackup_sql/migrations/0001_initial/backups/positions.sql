CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup',
  source STRING NOT NULL COMMENT 'name of the cluster',
  scope STRING NOT NULL COMMENT 'topic',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits: another one is another history',
  region STRING NOT NULL COMMENT 'partition number, as text',
  start_position BIGINT NOT NULL COMMENT 'first position of the backup',
  end_position BIGINT NOT NULL COMMENT 'next position to read',
  low_position BIGINT NOT NULL COMMENT 'lowest position the source still had',
  high_position BIGINT NOT NULL COMMENT 'the source\'s end, open transactions included',
  leader_epoch INT COMMENT 'of the leader that answered',
  ts BIGINT NOT NULL COMMENT 'instant taken, in ms'
)
USING delta
COMMENT 'What a backup covers of each region, [start, end)'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,epoch,backup_id,start_position,end_position',
  'delta.constraints.position_order' = 'start_position <= end_position'
)
