-- 45276430a709174b raw_backups restore_points
SELECT
  t.source,
  t.scope,
  t.covers_to AS end_ts,
  b.source_kind
FROM restore_points AS t
JOIN raw_backups AS b
  ON t.backup_id = b.backup_id
WHERE
  t.newest AND b.source_kind <> 'snapshot'
ORDER BY
  t.source NULLS FIRST,
  t.scope NULLS FIRST
