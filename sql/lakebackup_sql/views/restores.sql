-- Restores as they stand: the last row of each restore, topic and partition.
SELECT
  restore_id, at, source, scope, region, state, target, from_ts, to_ts, selection, position, entries, bytes,
  detail, timestamp_micros(at) AS time
FROM (
  SELECT r.*, row_number() OVER (PARTITION BY restore_id, scope, region ORDER BY at DESC) AS newest
  FROM raw_restores AS r
) AS numbered
WHERE newest = 1
