-- Objects that check :check_id saw in storage and that no file of any backup names, last changed before :before_ms, so
-- that what a running backup has not committed yet is left out. Files that were pruned count as named as long as their
-- prune is among :unfinished (ids separated by commas).
SELECT o.destination, o.path, o.bytes
FROM orphans AS o
WHERE o.check_id = :check_id
  AND o.modified_ms < :before_ms
  AND (o.prune_id IS NULL OR NOT ARRAY_CONTAINS(SPLIT(:unfinished, ','), o.prune_id))
