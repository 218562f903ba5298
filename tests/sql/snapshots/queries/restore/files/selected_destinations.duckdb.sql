SELECT DISTINCT
  s.destination
FROM selected AS s
ORDER BY
  s.destination NULLS FIRST
