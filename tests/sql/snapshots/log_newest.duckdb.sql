SELECT
  backup_id,
  number,
  base,
  chain_position,
  place,
  start_ts,
  end_ts,
  started_at,
  finished_at
FROM backups
WHERE
  source = $source AND kind = 'log' AND state = 'complete'
ORDER BY
  number DESC
LIMIT 1
