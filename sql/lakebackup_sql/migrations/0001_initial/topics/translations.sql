CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  restore_id STRING NOT NULL COMMENT 'the restore',
  at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  source STRING NOT NULL COMMENT 'name of the cluster',
  scope STRING NOT NULL COMMENT 'topic',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits: another one is another history',
  region STRING NOT NULL COMMENT 'partition number, as text',
  cluster STRING NOT NULL COMMENT 'id of the cluster restored into',
  target_scope STRING NOT NULL COMMENT 'topic there',
  target_epoch STRING NOT NULL COMMENT 'id of the topic there',
  target_region STRING NOT NULL COMMENT 'partition there',
  from_position BIGINT NOT NULL COMMENT 'first source position that this row is for',
  first_position BIGINT NOT NULL COMMENT 'source position of the run\'s first record',
  to_position BIGINT NOT NULL COMMENT 'end of the source positions that this row is for',
  target_position BIGINT NOT NULL COMMENT 'offset of the run\'s first record in the target; -1: not known',
  to_ts BIGINT COMMENT 'records after this instant (ms) were left out; null: none'
)
USING delta
COMMENT 'Source offsets to target offsets, one row a run of records'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,cluster,target_scope,from_position,to_position,restore_id',
  'delta.constraints.position_order' = 'from_position <= first_position AND first_position <= to_position'
)
