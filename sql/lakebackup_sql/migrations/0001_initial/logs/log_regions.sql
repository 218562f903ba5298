CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'backup that read so far',
  number BIGINT NOT NULL COMMENT 'number of that backup',
  source STRING NOT NULL COMMENT 'name of the task',
  region STRING NOT NULL COMMENT 'region of the feed',
  store STRING NOT NULL COMMENT 'store that the region was on',
  resolved_ts BIGINT NOT NULL COMMENT 'every change up to this ts was read',
  closed BOOLEAN NOT NULL COMMENT 'true: the region sends no more',
  successors STRING COMMENT 'of a closed region: regions that hold its keys now, as a JSON list'
)
USING delta
COMMENT 'How far each region of a change feed was read'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,region,number,resolved_ts,backup_id,store',
  'delta.constraints.numbered' = 'number >= 1'
)
