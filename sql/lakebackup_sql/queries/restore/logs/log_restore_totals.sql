-- What was chosen of a log (relation selected: rows as of log_restore_files), added up for each column family.
-- begin_ts: the least start ts of what the writes commit; null: all values are in the writes
-- whole_tables: files that may hold the end of a whole table
-- encrypted: files that are
SELECT
  f.cf,
  COUNT(*) AS files,
  COUNT(DISTINCT f.scope) AS tables,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.raw_bytes) AS BIGINT) AS raw_bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries,
  MIN(f.min_begin_ts) AS begin_ts,
  COUNT(CASE WHEN f.start_key = '' THEN 1 END) AS whole_tables,
  COUNT(f.key_id) AS encrypted
FROM selected AS f
GROUP BY f.cf
ORDER BY f.cf
