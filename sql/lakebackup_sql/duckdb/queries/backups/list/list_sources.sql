-- fe67f8f50b4be0dd restore_points
SELECT DISTINCT
  t.source
FROM restore_points AS t
ORDER BY
  t.source NULLS FIRST
