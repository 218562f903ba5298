SELECT DISTINCT
  f.destination,
  f.path
FROM files AS f
JOIN chosen AS c
  ON f.destination = c.destination AND f.path = c.path
