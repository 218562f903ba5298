CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  key_id STRING NOT NULL COMMENT 'id of the data key, 16 hex digits: key_id of the files that it encrypts',
  source STRING NOT NULL COMMENT 'name of the source',
  backup_id STRING NOT NULL COMMENT 'the backup whose files it encrypts',
  recipient STRING NOT NULL COMMENT 'who can open it: age1..., ssh-..., or aws-kms: and a key of AWS',
  created_at BIGINT NOT NULL COMMENT 'when the data key was made, microseconds since 1970 UTC',
  wrapped_at BIGINT NOT NULL COMMENT 'when it was wrapped for its recipients, microseconds since 1970 UTC: the latest counts'
)
USING delta
COMMENT 'Data keys of encrypted backups, and who can open them; rows of backups without a row in backups do not count'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'source,backup_id'
)
