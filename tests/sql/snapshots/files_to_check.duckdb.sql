SELECT
  f.backup_id,
  f.scope,
  f.epoch,
  f.region,
  f.start_position,
  f.end_position,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.bytes,
  f.sha256,
  f.entries,
  f.min_ts,
  f.max_ts
FROM files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
WHERE
  b.source_kind IN ('kafka', 'couchbase')
  AND (
    $backup_ids = ''
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), f.backup_id)
  )
