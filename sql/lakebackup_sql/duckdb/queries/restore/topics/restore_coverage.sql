-- 49466eaa3e02c66f restore_points
SELECT
  t.scope,
  t.covers_to AS end_ts
FROM restore_points AS t
WHERE
  t.source = $source AND t.newest
ORDER BY
  t.scope NULLS FIRST
