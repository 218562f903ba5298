-- The rows of removals that still count, and one in place of those that need not be told apart any more: of a backup in
-- :destination all of whose files were removed before :before (microseconds since 1970 UTC), by prunes that are not
-- among :incomplete (ids separated by commas), one row for each prune and reason, with the number of its files. Which
-- prunes of other destinations are incomplete is not known here. Objects of snapshots keep their rows: other backups
-- have files in them.
WITH emptied AS (
  SELECT f.backup_id
  FROM raw_files AS f
  JOIN raw_backups AS b ON f.backup_id = b.backup_id
  LEFT SEMI JOIN raw_removals AS s ON f.backup_id = s.backup_id
  LEFT JOIN raw_removals AS r ON f.destination = r.destination AND f.path = r.path
  WHERE b.destination = :destination
    AND b.source_kind IN ('kafka', 'changes', 'queues')
    AND f.role <> 'meta'
  GROUP BY f.backup_id
  HAVING COUNT(*) = COUNT(CASE WHEN r.at < :before AND NOT ARRAY_CONTAINS(SPLIT(:incomplete, ','), r.prune_id) THEN 1 END)
)
SELECT
  r.prune_id, r.at, r.source, r.destination, r.path, r.backup_id, r.scope, r.epoch, r.region, r.bytes, r.reason, r.files
FROM raw_removals AS r
LEFT ANTI JOIN emptied AS e ON r.backup_id = e.backup_id
UNION ALL
SELECT
  r.prune_id, r.at, r.source, r.destination, '-' AS path, r.backup_id, '-' AS scope, '-' AS epoch, '-' AS region,
  CAST(SUM(r.bytes) AS BIGINT) AS bytes,
  r.reason,
  CAST(SUM(COALESCE(r.files, 1)) AS BIGINT) AS files
FROM raw_removals AS r
LEFT SEMI JOIN emptied AS e ON r.backup_id = e.backup_id
GROUP BY r.prune_id, r.at, r.source, r.destination, r.backup_id, r.reason
