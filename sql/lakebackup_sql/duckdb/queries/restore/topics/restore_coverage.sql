-- c08a891cab208231 restore_points
SELECT
  t.scope,
  t.place,
  t.covers_to AS end_ts
FROM restore_points AS t
WHERE
  t.source = $source AND t.newest
ORDER BY
  t.scope NULLS FIRST
