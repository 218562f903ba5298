SELECT
  f.backup_id,
  COUNT(*) AS files,
  TRY_CAST(SUM(f.bytes) AS BIGINT) AS bytes
FROM files AS f
JOIN leaving AS v
  ON f.backup_id = v.backup_id
GROUP BY
  f.backup_id
