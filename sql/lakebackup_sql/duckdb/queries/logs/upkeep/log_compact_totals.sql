-- ac27a6fdd08cb146 to_compact
SELECT
  COUNT(*) AS files,
  COUNT(DISTINCT c.scope) AS tables,
  TRY_CAST(COALESCE(SUM(c.bytes), 0) AS BIGINT) AS bytes,
  TRY_CAST(COALESCE(SUM(c.raw_bytes), 0) AS BIGINT) AS raw_bytes,
  TRY_CAST(COALESCE(SUM(c.entries), 0) AS BIGINT) AS entries,
  COUNT(c.key_id) AS encrypted
FROM to_compact AS c
