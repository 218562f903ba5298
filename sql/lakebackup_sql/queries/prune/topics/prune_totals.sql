-- What cutting the partitions of :source in the relation cuts would delete, added up for each of them by reason; the backups of
-- the relation leaving, which go whole, left out.
SELECT
  d.scope, d.epoch, d.region, d.reason,
  COUNT(*) AS files,
  CAST(SUM(d.bytes) AS BIGINT) AS bytes,
  MAX(d.max_ts) AS max_ts
FROM (
  SELECT
    f.scope, f.epoch, f.region, f.bytes, f.max_ts,
    CASE
      WHEN f.generation < c.generation THEN 'generation'
      WHEN f.end_position <= c.time_floor THEN 'time'
      ELSE 'size'
    END AS reason
  FROM files AS f
  JOIN cuts AS c ON c.source = :source AND f.scope = c.scope AND f.epoch = c.epoch AND f.region = c.region
  LEFT ANTI JOIN leaving AS v ON f.backup_id = v.backup_id
  WHERE f.source = :source
    AND f.role = 'data'
    AND (f.generation < c.generation OR f.end_position <= c.low_position)
) AS d
GROUP BY d.scope, d.epoch, d.region, d.reason
ORDER BY d.scope, d.epoch, d.region, d.reason
