-- e6a9bc1a12c41269 chain_points
SELECT
  t.scope,
  t.backup_id,
  t.source,
  t.epoch,
  t.base,
  t.generation,
  t.number
FROM chain_points AS t
WHERE
  t.backup_id IN ($a, $b)
ORDER BY
  t.scope NULLS FIRST,
  t.number NULLS FIRST
