-- 31c3bfef4f3fe341 raw_backups
SELECT DISTINCT
  l.source,
  l.place
FROM raw_backups AS l
JOIN raw_backups AS e
  ON l.source = e.source AND l.end_ts = e.end_ts AND e.number < l.number
WHERE
  l.number = l.place
