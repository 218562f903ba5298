CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup that found it',
  source STRING NOT NULL COMMENT 'name of the cluster',
  scope STRING NOT NULL COMMENT 'topic',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits: another one is another history',
  region STRING NOT NULL COMMENT 'partition number, as text',
  from_position BIGINT NOT NULL COMMENT 'first lost position',
  to_position BIGINT COMMENT 'end of the lost positions; null: unknown, the topic was recreated',
  reason STRING NOT NULL COMMENT 'purged or recreated',
  from_ts BIGINT NOT NULL COMMENT 'end_ts of the last backup that covered it',
  to_ts BIGINT NOT NULL COMMENT 'end_ts of the backup that found it',
  bridged BOOLEAN NOT NULL COMMENT 'true: the chain continues over the gap'
)
USING delta
COMMENT 'Records that no backup holds'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,scope,region,epoch,backup_id,from_ts,to_ts',
  'delta.constraints.ts_order' = 'from_ts <= to_ts'
)
