-- 344cdb5beac75649 backups selected
SELECT
  b.backup_id,
  b.kind,
  b.level,
  b.end_ts,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries
FROM selected AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
GROUP BY
  b.backup_id,
  b.kind,
  b.level,
  b.end_ts,
  b.place,
  b.number
ORDER BY
  b.place NULLS FIRST,
  b.number NULLS FIRST
