-- c586e184089ff305 groups
SELECT DISTINCT
  g.group_id
FROM groups AS g
WHERE
  g.source = $source AND NOT g.position IS NULL
ORDER BY
  g.group_id NULLS FIRST
