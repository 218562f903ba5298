CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup',
  number BIGINT NOT NULL COMMENT 'goes up by one per source',
  source STRING NOT NULL COMMENT 'name of the cluster',
  source_kind STRING NOT NULL COMMENT 'kafka',
  destination STRING NOT NULL COMMENT 'id of the place that holds the object',
  kind STRING NOT NULL COMMENT 'full, differential, or log: a batch of a continuous backup, which continues the one before it',
  level INT NOT NULL COMMENT '0 for a full',
  parent STRING COMMENT 'the backup it continues',
  base STRING NOT NULL COMMENT 'the full it stands on, itself for a full',
  chain_position INT NOT NULL COMMENT '0 for a full, then one more each',
  branch INT NOT NULL COMMENT '0 unless the history was cut',
  state STRING NOT NULL COMMENT 'complete, out_of_sync, deleted or unconfirmed',
  ts_domain STRING NOT NULL COMMENT 'unit of min_ts, max_ts, start_ts, end_ts: ms',
  start_ts BIGINT COMMENT 'end_ts of the parent',
  end_ts BIGINT NOT NULL COMMENT 'instant the end positions were taken: coverage ends here',
  started_at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  finished_at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC',
  files BIGINT NOT NULL COMMENT 'number of data files',
  bytes BIGINT NOT NULL COMMENT 'size of the data files',
  entries BIGINT NOT NULL COMMENT 'number of records',
  digest STRING NOT NULL COMMENT 'of the file rows, whatever their order',
  isolation STRING NOT NULL COMMENT 'read_committed or read_uncommitted',
  codec STRING NOT NULL COMMENT 'null, deflate, snappy or zstandard',
  created_by STRING NOT NULL COMMENT 'account and host',
  tool STRING NOT NULL COMMENT 'version of the program',
  note STRING COMMENT 'free text'
)
USING delta
COMMENT 'One row a finished backup; this row alone makes the backup exist'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,number,base,end_ts,backup_id',
  'delta.constraints.number_positive' = 'number >= 1',
  'delta.constraints.levels' = 'level >= 0 AND chain_position >= 0'
)
