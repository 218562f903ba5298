-- The files of the backups to merge (relation to_merge: backup_id), one partition after another: those that a restore
-- of :last, the last of them, takes of these backups.
SELECT
  f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format, f.codec, f.bytes,
  f.sha256, f.entries, f.raw_bytes, f.min_ts, f.max_ts, f.start_key, f.end_key, f.null_keys, f.tombstones, f.generation,
  f.key_id, f.keys_path, f.keys_start, f.keys_blocks
FROM files AS f
JOIN to_merge AS m ON f.backup_id = m.backup_id
JOIN scopes AS l ON f.source = l.source AND f.scope = l.scope AND f.epoch = l.epoch AND f.generation = l.generation
WHERE f.source = :source
  AND l.backup_id = :last
  AND f.role = 'data'
ORDER BY f.scope, f.epoch, f.region, f.start_position, f.path
