-- 49cbf5f614fabd08 faults selected
SELECT
  f.scope,
  f.region,
  c.path,
  c.outcome,
  c."at"
FROM selected AS f
JOIN faults AS c
  ON c.destination = f.destination AND c.path = f.path
ORDER BY
  f.scope NULLS FIRST,
  f.region NULLS FIRST,
  c.path NULLS FIRST
LIMIT 100
