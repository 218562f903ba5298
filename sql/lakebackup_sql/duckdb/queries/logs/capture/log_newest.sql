-- fe45f8fc4e76b1e8 backups
SELECT
  backup_id,
  number,
  base,
  chain_position,
  place,
  start_ts,
  end_ts
FROM backups
WHERE
  source = $source AND kind = 'log' AND state = 'complete'
ORDER BY
  number DESC
LIMIT 1
