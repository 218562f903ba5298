CREATE TABLE IF NOT EXISTS IDENTIFIER(:table) (
  destination STRING NOT NULL COMMENT 'id, also in the place\'s lakebackup.json',
  uri STRING NOT NULL COMMENT 'where it is; empty: the folder that holds the catalog\'s folder',
  created_at BIGINT NOT NULL COMMENT 'microseconds since 1970 UTC'
)
USING delta
COMMENT 'Places that hold data objects'
TBLPROPERTIES (
  'delta.checkpointPolicy' = 'classic',
  'delta.columnMapping.mode' = 'none',
  'delta.enableDeletionVectors' = 'false',
  'delta.enableRowTracking' = 'false',
  'delta.enableTypeWidening' = 'false',
  'delta.checkpointInterval' = '50',
  'delta.setTransactionRetentionDuration' = 'interval 30 days',
  'delta.dataSkippingStringPrefixLength' = '128',
  'delta.dataSkippingStatsColumns' = 'destination'
)
