-- d6dc6c136786df99 backups selected
SELECT
  f.source,
  MAX(b.source_kind) AS source_kind,
  COUNT(*) AS files
FROM selected AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
GROUP BY
  f.source
ORDER BY
  f.source NULLS FIRST
