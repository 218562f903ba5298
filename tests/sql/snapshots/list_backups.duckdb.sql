SELECT
  source,
  number,
  backup_id,
  kind,
  state,
  intact,
  base,
  parent,
  chain_position,
  start_ts,
  end_ts,
  end_time,
  started_time,
  finished_time,
  files,
  bytes,
  entries,
  isolation,
  codec,
  tool,
  note
FROM backups
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR source = $source
ORDER BY
  source NULLS FIRST,
  number DESC
