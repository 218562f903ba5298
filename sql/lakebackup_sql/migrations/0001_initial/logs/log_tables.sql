CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'backup that read of it',
  source STRING NOT NULL COMMENT 'name of the task',
  table_id BIGINT NOT NULL COMMENT 'id of the table in the feed',
  db STRING NOT NULL COMMENT 'database, or schema',
  name STRING NOT NULL COMMENT 'name of the table',
  from_ts BIGINT NOT NULL COMMENT 'commit ts from which it has that name',
  action STRING NOT NULL COMMENT 'create, rename, truncate (it took the place of another) or drop',
  replaces BIGINT COMMENT 'of truncate: the id before',
  covered_from BIGINT NOT NULL COMMENT 'every change of it after this ts is in the log'
)
USING delta
COMMENT 'Names of the tables of change feeds over time'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,table_id,from_ts,db,name,backup_id',
  'delta.constraints.action_known' = 'action IN (\'create\', \'rename\', \'truncate\', \'drop\')'
)
