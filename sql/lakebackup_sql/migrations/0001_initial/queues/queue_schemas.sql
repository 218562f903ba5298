CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'backup of the queues',
  source STRING NOT NULL COMMENT 'name of the engine',
  version BIGINT NOT NULL COMMENT 'number of the version',
  from_tid BIGINT NOT NULL COMMENT 'tid from which it is valid',
  change STRING COMMENT 'JSON: what was changed; null: not recorded',
  definition STRING COMMENT 'JSON: the version itself; null: not recorded'
)
USING delta
COMMENT 'Versions of the schema of an engine\'s messages, as each backup found them'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,from_tid,version,backup_id',
  'delta.constraints.numbered' = 'version >= 0'
)
