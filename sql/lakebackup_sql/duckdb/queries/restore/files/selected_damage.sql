-- bec43dd6b9dda261 faults selected
SELECT
  f.scope,
  f.region,
  c.path,
  c.outcome,
  c."at"
FROM faults AS c
JOIN selected AS f
  ON c.destination = f.destination AND c.path = f.path
ORDER BY
  f.scope NULLS FIRST,
  f.region NULLS FIRST,
  c.path NULLS FIRST
LIMIT 100
