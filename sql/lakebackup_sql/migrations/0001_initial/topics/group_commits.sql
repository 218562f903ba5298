CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup that holds the record',
  source STRING NOT NULL COMMENT 'name of the cluster',
  kind STRING NOT NULL COMMENT 'offset, group, or another kind of record',
  group_id STRING COMMENT 'the consumer group',
  scope STRING COMMENT 'topic',
  epoch STRING COMMENT 'topic id, when the record has it',
  region STRING COMMENT 'partition number, as text',
  position BIGINT COMMENT 'next offset that the group reads; null: it was erased',
  leader_epoch INT COMMENT 'as the group committed it',
  metadata STRING COMMENT 'what the group stored with the offset',
  commit_ts BIGINT COMMENT 'instant of the commit, in ms',
  expire_ts BIGINT COMMENT 'when it runs out, in ms, where the record has it',
  key_version INT COMMENT 'of the record\'s format',
  value_version INT COMMENT 'of the record\'s format',
  detail STRING COMMENT 'records that are no offset, as JSON text',
  problem STRING COMMENT 'why the record could not be decoded',
  log_epoch STRING NOT NULL COMMENT 'id of the topic __consumer_offsets',
  log_region STRING NOT NULL COMMENT 'its partition',
  log_position BIGINT NOT NULL COMMENT 'offset of the record in it',
  log_ts BIGINT NOT NULL COMMENT 'timestamp of the record, in ms'
)
USING delta
COMMENT 'Records of the cluster\'s own topic of group offsets, decoded'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,group_id,scope,region,log_ts,log_position,backup_id'
)
