-- The backup that each topic in :scopes (names separated by commas) is restored from: the first one taken at or after
-- :to_ts, or the newest when that is NULL.
SELECT
  t.scope, t.epoch, t.backup_id, t.base, t.number,
  t.covers_to AS end_ts,
  t.regions, t.replication, t.settings
FROM chain_points AS t
WHERE t.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), t.scope)
  AND CASE WHEN CAST(:to_ts AS BIGINT) IS NULL THEN t.newest ELSE :to_ts > t.covers_from AND :to_ts <= t.covers_to END
ORDER BY t.scope
