SELECT
  t.source,
  t.scope,
  t.covers_to AS end_ts
FROM restore_points AS t
WHERE
  t.newest
ORDER BY
  t.source NULLS FIRST,
  t.scope NULLS FIRST
