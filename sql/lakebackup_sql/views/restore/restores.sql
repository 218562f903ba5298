-- One row per restore, topic and partition: the current state of the restore. It is the last row that the restore
-- recorded for the partition. A ts that is too large to be a date in ms is one of a timestamp oracle.
-- time: at, in UTC
-- from_time: from_ts, in UTC; null: no bound
-- to_time: to_ts, in UTC; null: no bound
SELECT
  restore_id, at, source, scope, region, state, target, from_ts, to_ts, selection, position, entries, bytes,
  detail, actor, timestamp_micros(at) AS time,
  CASE
    WHEN from_ts >= 281474976710656 THEN timestamp_millis(from_ts DIV 262144)
    WHEN from_ts >= 0 THEN timestamp_millis(from_ts)
  END AS from_time,
  CASE
    WHEN to_ts >= 281474976710656 THEN timestamp_millis(to_ts DIV 262144)
    WHEN to_ts >= 0 THEN timestamp_millis(to_ts)
  END AS to_time
FROM (
  SELECT r.*, row_number() OVER (PARTITION BY restore_id, scope, region ORDER BY at DESC) AS newest
  FROM raw_restores AS r
) AS numbered
WHERE newest = 1
