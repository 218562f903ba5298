-- 59959ca86e2941d4 restore_points
SELECT
  t.scope,
  t.backup_id,
  t.source,
  t.epoch,
  t.base,
  t.generation,
  t.number
FROM restore_points AS t
WHERE
  t.backup_id IN ($a, $b)
ORDER BY
  t.scope NULLS FIRST,
  t.number NULLS FIRST
