-- Each file once that a person's SELECT chose (relation chosen: destination, path), if it counts.
SELECT DISTINCT
  f.destination,
  f.path
FROM files AS f
JOIN chosen AS c
  ON f.destination = c.destination
  AND f.path = c.path
