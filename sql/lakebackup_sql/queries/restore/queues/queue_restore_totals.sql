-- What the files chosen for the restore of an engine's queues (relation selected: rows as of queue_restore_files) come
-- to, a row for each queue.
SELECT
  f.scope,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries,
  MIN(f.min_ts) AS min_ts
FROM selected AS f
GROUP BY f.scope
ORDER BY f.scope
