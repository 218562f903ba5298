-- 680398e241eb1b94 chain_points
SELECT
  t.scope,
  t.covers_to AS end_ts
FROM chain_points AS t
WHERE
  t.source = $source AND t.newest
ORDER BY
  t.scope NULLS FIRST
