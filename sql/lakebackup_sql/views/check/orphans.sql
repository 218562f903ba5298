-- One row per stored object that belongs to no file of any backup: which objects are left over in a repository. The
-- view has what the newest run of verify saw in each repository (`destination`). A young object may belong to a backup
-- that has not committed yet (see `modified_time`).
-- prune_id: the prune that removed the file but has not deleted its object; null: no backup has such a file
-- age_ms: time from the last change of the object to the run of verify, in ms
-- time: when verify looked, in UTC
SELECT
  o.check_id, o.at, o.destination, o.path, o.bytes, o.modified_ms, o.modified_time,
  COALESCE(r.prune_id, e.prune_id) AS prune_id,
  CAST(FLOOR(o.at / 1000) AS BIGINT) - o.modified_ms AS age_ms,
  timestamp_micros(o.at) AS time
FROM storage_objects AS o
LEFT JOIN raw_files AS f ON o.destination = f.destination AND o.path = f.path
LEFT JOIN raw_backups AS b ON f.backup_id = b.backup_id
LEFT JOIN raw_removals AS r ON o.destination = r.destination AND o.path = r.path
LEFT JOIN emptied_backups AS e ON CASE WHEN f.role <> 'meta' THEN f.backup_id END = e.backup_id
WHERE b.backup_id IS NULL OR r.path IS NOT NULL OR e.backup_id IS NOT NULL
