-- What a compaction reads (relation to_compact: rows as of log_compact_files).
-- encrypted: files that only a key opens
SELECT
  COUNT(*) AS files,
  COUNT(DISTINCT c.scope) AS tables,
  CAST(COALESCE(SUM(c.bytes), 0) AS BIGINT) AS bytes,
  CAST(COALESCE(SUM(c.raw_bytes), 0) AS BIGINT) AS raw_bytes,
  CAST(COALESCE(SUM(c.entries), 0) AS BIGINT) AS entries,
  COUNT(c.key_id) AS encrypted
FROM to_compact AS c
