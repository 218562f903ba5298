-- ee2bf69d4669461b selected
SELECT DISTINCT
  s.destination
FROM selected AS s
ORDER BY
  s.destination NULLS FIRST
