-- Where the key filters of files are stored, object by object, of the backups whose ids are in :backup_ids (separated
-- by commas; empty: all).
SELECT
  f.backup_id, f.destination, f.scope, f.epoch, f.region, f.start_position, f.key_id, f.keys_path, f.keys_start,
  f.keys_blocks, f.sha256
FROM files AS f
WHERE f.keys_path IS NOT NULL
  AND (:backup_ids = '' OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), f.backup_id))
ORDER BY f.destination, f.keys_path, f.keys_start
