-- 6793aaa82108f5b3 chain_points own_backups
SELECT DISTINCT
  t.source,
  b.source_kind
FROM chain_points AS t
JOIN own_backups AS b
  ON t.backup_id = b.backup_id
ORDER BY
  t.source NULLS FIRST,
  b.source_kind NULLS FIRST
