-- 16ead85741d2932a backups files
SELECT
  f.source,
  f.scope,
  f.epoch,
  f.region,
  f.generation,
  f.backup_id,
  b.link,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.bytes,
  f.sha256,
  f.entries,
  f.start_position,
  f.end_position,
  f.min_ts,
  f.max_ts,
  f.min_tid,
  f.max_tid
FROM files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
WHERE
  f.source = $source
  AND b.source = $source
  AND b.base = $base
  AND b.link <= TRY_CAST($link AS BIGINT)
  AND TRY_CAST($link AS BIGINT) < b.unlinked
  AND b.state = 'complete'
  AND f.role = 'data'
  AND f.format LIKE 'kafka-avro-%'
  AND (
    TRY_CAST($to_tid AS BIGINT) IS NULL
    OR f.min_tid IS NULL
    OR f.min_tid <= TRY_CAST($to_tid AS BIGINT)
  )
