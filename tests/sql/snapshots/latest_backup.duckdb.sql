SELECT
  *
FROM backups
WHERE
  source = $source AND state = 'complete' AND intact
ORDER BY
  number DESC
LIMIT 1
