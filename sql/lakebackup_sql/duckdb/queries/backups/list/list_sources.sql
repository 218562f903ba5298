-- dda0463f4fab396b own_backups restore_points
SELECT DISTINCT
  t.source
FROM restore_points AS t
SEMI JOIN own_backups AS b
  ON t.backup_id = b.backup_id
ORDER BY
  t.source NULLS FIRST
