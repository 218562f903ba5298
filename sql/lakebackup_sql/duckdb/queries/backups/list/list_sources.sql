-- 1ed0007b86e657df own_backups restore_points
SELECT DISTINCT
  t.source,
  b.source_kind
FROM restore_points AS t
JOIN own_backups AS b
  ON t.backup_id = b.backup_id
ORDER BY
  t.source NULLS FIRST,
  b.source_kind NULLS FIRST
