-- cf636440af9705ef files scopes to_merge
SELECT
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
  f.raw_bytes,
  f.min_ts,
  f.max_ts,
  f.start_key,
  f.end_key,
  f.null_keys,
  f.tombstones,
  f.generation,
  f.keys_path,
  f.keys_start,
  f.keys_blocks
FROM files AS f
JOIN to_merge AS m
  ON f.backup_id = m.backup_id
JOIN scopes AS l
  ON f.source = l.source
  AND f.scope = l.scope
  AND f.epoch = l.epoch
  AND f.generation = l.generation
WHERE
  f.source = $source AND l.backup_id = $last AND f.role = 'data'
ORDER BY
  f.scope NULLS FIRST,
  f.epoch NULLS FIRST,
  f.region NULLS FIRST,
  f.start_position NULLS FIRST,
  f.path NULLS FIRST
