CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  backup_id STRING NOT NULL COMMENT 'the backup that holds the record',
  source STRING NOT NULL COMMENT 'name of the cluster',
  scope STRING NOT NULL COMMENT 'topic of the registry',
  epoch STRING NOT NULL COMMENT 'topic id, 32 hex digits: another one is another history',
  kind STRING NOT NULL COMMENT 'schema, config, mode, delete_subject or another kind of record',
  subject STRING COMMENT 'the subject',
  version INT COMMENT 'version of the subject',
  schema_id INT COMMENT 'the id that values carry',
  schema_type STRING COMMENT 'AVRO, JSON or PROTOBUF',
  schema_text STRING COMMENT 'the schema',
  schema_references STRING COMMENT 'schemas it names, as JSON text',
  deleted BOOLEAN NOT NULL COMMENT 'true: marked as deleted, still there',
  erased BOOLEAN NOT NULL COMMENT 'true: the record has no value',
  detail STRING COMMENT 'records that are no schema, as JSON text',
  problem STRING COMMENT 'why the record could not be decoded',
  log_region STRING NOT NULL COMMENT 'partition of the record',
  log_position BIGINT NOT NULL COMMENT 'offset of the record',
  log_ts BIGINT NOT NULL COMMENT 'timestamp of the record, in ms'
)
USING delta
COMMENT 'Records of schema registries, decoded'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,subject,schema_id,log_position,backup_id'
)
