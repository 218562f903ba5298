SELECT
  f.scope,
  f.region,
  c.path,
  c.outcome,
  c."at"
FROM faults AS c
JOIN selected AS s
  ON c.destination = s.destination AND c.path = s.path
JOIN files AS f
  ON s.destination = f.destination AND s.path = f.path
ORDER BY
  f.scope NULLS FIRST,
  f.region NULLS FIRST,
  c.path NULLS FIRST
LIMIT 100
