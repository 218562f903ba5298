-- Of the files chosen (relation selected: rows as of queue_restore_files), the least tid in those whose every message
-- is later than :to_ts (ms), and how many others hold a later one: in these it may be less.
SELECT
  MIN(CASE WHEN f.min_ts > CAST(:to_ts AS BIGINT) THEN f.min_tid END) AS tid,
  COUNT(CASE WHEN f.min_ts <= CAST(:to_ts AS BIGINT) AND CAST(:to_ts AS BIGINT) < f.max_ts THEN 1 END) AS straddling
FROM selected AS f
