-- The files that hold records with a timestamp in (:from_ts, :to_ts] of the topics in :scopes (names
-- parted by commas): those of the backup each topic is restored from, and of the chain it stands on.
SELECT
  f.destination,
  f.path
FROM files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
JOIN restore_points AS t
  ON f.source = t.source
  AND f.scope = t.scope
  AND f.epoch = t.epoch
  AND f.generation = t.generation
  AND b.base = t.base
  AND b.link <= t.link
  AND t.link < b.unlinked
WHERE f.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), f.scope)
  AND t.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), t.scope)
  AND b.state = 'complete'
  AND f.role = 'data'
  AND (
    (CAST(:to_ts AS BIGINT) IS NULL AND t.newest)
    OR (t.covers_from < CAST(:to_ts AS BIGINT) AND CAST(:to_ts AS BIGINT) <= t.covers_to)
  )
  AND (CAST(:from_ts AS BIGINT) IS NULL OR f.max_ts > CAST(:from_ts AS BIGINT))
  AND (CAST(:to_ts AS BIGINT) IS NULL OR f.min_ts <= CAST(:to_ts AS BIGINT))
