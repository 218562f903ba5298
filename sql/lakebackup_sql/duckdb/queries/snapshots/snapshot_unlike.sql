-- 966d53e8ed3abc9c snapshot_compared
SELECT
  s.folder,
  s.name
FROM snapshot_compared AS s
WHERE
  s.change = 'unlike'
ORDER BY
  s.scope NULLS FIRST,
  s.region NULLS FIRST,
  s.name NULLS FIRST
LIMIT 20
