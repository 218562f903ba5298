-- 81a2dfb98aa84302 chain_points
SELECT
  t.scope,
  t.place,
  t.covers_to AS end_ts
FROM chain_points AS t
WHERE
  t.source = $source AND t.newest
ORDER BY
  t.scope NULLS FIRST
