-- 9774dbca554fb001 backups
SELECT
  source,
  number,
  backup_id,
  parent,
  base,
  place,
  branch,
  kind,
  level,
  state,
  intact,
  end_ts,
  end_time,
  files,
  bytes,
  entries,
  note
FROM backups
WHERE
  state <> 'deleted'
  AND (
    TRY_CAST($source AS TEXT) IS NULL OR source = $source
  )
ORDER BY
  source NULLS FIRST,
  place NULLS FIRST,
  number NULLS FIRST
