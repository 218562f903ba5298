-- Each file once that a user's SELECT chose (relation chosen: destination, path), if it counts. :first_path, :last_path,
-- :first_scope, :last_scope: as chosen_rows has them.
SELECT DISTINCT
  f.source, f.scope, f.epoch, f.region, f.generation, f.backup_id, f.destination, f.path, f.format, f.codec, f.bytes,
  f.raw_bytes, f.sha256, f.entries, f.start_position, f.end_position, f.min_ts, f.max_ts
FROM files AS f
JOIN chosen AS c ON f.destination = c.destination AND f.path = c.path
WHERE f.path BETWEEN :first_path AND :last_path
  AND (CAST(:first_scope AS STRING) IS NULL OR f.scope BETWEEN :first_scope AND :last_scope)
ORDER BY f.scope, f.epoch, f.region, f.start_position, f.path
