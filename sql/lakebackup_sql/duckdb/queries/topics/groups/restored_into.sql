-- 91b2f915616f191a translations
SELECT DISTINCT
  t.scope,
  t.target_scope,
  t.target_epoch
FROM translations AS t
WHERE
  t.source = $source AND t.cluster = $cluster
ORDER BY
  t.scope NULLS FIRST,
  t.target_scope NULLS FIRST,
  t.target_epoch NULLS FIRST
