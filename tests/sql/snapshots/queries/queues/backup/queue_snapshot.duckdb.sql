SELECT
  backup_id
FROM raw_backups
WHERE
  source = $source AND note = $note AND state = 'complete'
ORDER BY
  number DESC
LIMIT 1
