-- 6b90bc8a1e41e0f2 raw_backups
SELECT
  backup_id
FROM raw_backups
WHERE
  source = $source AND note = $note AND state = 'complete'
ORDER BY
  number DESC
LIMIT 1
