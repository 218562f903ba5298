SELECT
  f.scope,
  f.region,
  c.path,
  c.outcome,
  c."at"
FROM (
  SELECT
    k.destination,
    k.path,
    k.outcome,
    k."at",
    ROW_NUMBER() OVER (PARTITION BY k.destination, k.path ORDER BY k."at" DESC, k.outcome NULLS FIRST) AS place
  FROM checks AS k
  WHERE
    NOT k.path IS NULL
) AS c
JOIN selected AS s
  ON c.destination = s.destination AND c.path = s.path
JOIN files AS f
  ON s.destination = f.destination AND s.path = f.path
WHERE
  c.place = 1 AND c.outcome IN ('missing', 'changed', 'damaged')
ORDER BY
  f.scope NULLS FIRST,
  f.region NULLS FIRST,
  c.path NULLS FIRST
LIMIT 100
