-- 1cc10fddba4c00c1 chosen files
SELECT DISTINCT
  f.source,
  f.scope,
  f.epoch,
  f.region,
  f.generation,
  f.backup_id,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.bytes,
  f.raw_bytes,
  f.sha256,
  f.entries,
  f.start_position,
  f.end_position,
  f.min_ts,
  f.max_ts
FROM files AS f
JOIN chosen AS c
  ON f.destination = c.destination AND f.path = c.path
WHERE
  f.path BETWEEN $first_path AND $last_path
  AND (
    TRY_CAST($first_scope AS TEXT) IS NULL
    OR f.scope BETWEEN $first_scope AND $last_scope
  )
