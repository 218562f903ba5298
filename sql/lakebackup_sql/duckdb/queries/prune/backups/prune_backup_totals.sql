-- 6ab8bc18836d83b5 files leaving
SELECT
  f.backup_id,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes
FROM files AS f
JOIN leaving AS v
  ON f.backup_id = v.backup_id
WHERE
  NOT f.format IN ('queue-points', 'queue-positions', 'queue-transactions', 'queue-schemas')
GROUP BY
  f.backup_id
