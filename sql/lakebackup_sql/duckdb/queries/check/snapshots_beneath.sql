-- 23bb6a4f2b2546b4 raw_queue_points
SELECT DISTINCT
  p.snapshot_id
FROM raw_queue_points AS p
WHERE
  NOT p.snapshot_id IS NULL
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), p.backup_id)
ORDER BY
  p.snapshot_id NULLS FIRST
