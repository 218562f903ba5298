-- The files chosen (relation selected: rows as of queue_restore_files) that hold messages of before and after :to_ts
-- (ms), and a tid below :tid (null: any).
SELECT
  f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format, f.codec, f.bytes,
  f.sha256, f.entries, f.link, f.min_tid
FROM selected AS f
WHERE f.min_ts <= CAST(:to_ts AS BIGINT)
  AND CAST(:to_ts AS BIGINT) < f.max_ts
  AND (CAST(:tid AS BIGINT) IS NULL OR f.min_tid IS NULL OR f.min_tid < CAST(:tid AS BIGINT))
ORDER BY f.min_tid, f.path
