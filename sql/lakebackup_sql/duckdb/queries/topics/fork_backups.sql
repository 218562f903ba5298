-- c5801950d0924c6c raw_backups
SELECT
  backup_id
FROM raw_backups
WHERE
  source = $source AND state = 'complete' AND place >= $place
ORDER BY
  place DESC,
  number DESC
