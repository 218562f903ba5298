SELECT
  MIN(f.destination) AS destination,
  f.path
FROM files AS f
JOIN (
  SELECT DISTINCT
    c.path
  FROM chosen AS c
) AS w
  ON f.path = w.path
GROUP BY
  f.path
HAVING
  COUNT(DISTINCT f.destination) = 1
