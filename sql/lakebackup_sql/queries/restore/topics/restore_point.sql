-- What topics are restored from, in the place of restore_points: those of backup :backup_id; null: of each topic in
-- :scopes (names separated by commas) of :source (null: any) the one that covers :to_ts (null: the newest).
SELECT
  source, scope, epoch, destination, backup_id, base, number, place, link, kind, regions, replication, settings,
  generation, covers_from, covers_to, TRUE AS newest, ts_domain, covers_from_time, covers_to_time
FROM chain_points
WHERE (CAST(:backup_id AS STRING) IS NULL OR backup_id = :backup_id)
  AND (CAST(:source AS STRING) IS NULL OR source = :source)
  AND (CAST(:scopes AS STRING) IS NULL OR ARRAY_CONTAINS(SPLIT(:scopes, ','), scope))
  AND CASE
    WHEN CAST(:backup_id AS STRING) IS NOT NULL THEN TRUE
    WHEN CAST(:to_ts AS BIGINT) IS NULL THEN newest
    ELSE :to_ts > covers_from AND :to_ts <= covers_to
  END
ORDER BY scope
