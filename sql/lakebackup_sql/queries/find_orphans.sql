-- Objects that check :check_id saw in storage and that no file of any backup names, last changed before
-- :before_ms, so that what a running backup has not committed yet is left out. Files that were pruned count as
-- named as long as their prune is among :unfinished (ids parted by commas).
SELECT
  o.destination,
  o.path,
  o.bytes
FROM raw_storage_objects AS o
LEFT JOIN raw_files AS f
  ON o.destination = f.destination
  AND o.path = f.path
LEFT JOIN raw_backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN raw_removals AS r
  ON o.destination = r.destination
  AND o.path = r.path
WHERE o.check_id = :check_id
  AND o.modified_ms < :before_ms
  AND (
    b.backup_id IS NULL
    OR (r.path IS NOT NULL AND NOT ARRAY_CONTAINS(SPLIT(:unfinished, ','), r.prune_id))
  )
