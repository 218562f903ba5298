-- The files that hold records with a timestamp in (:from_ts, :to_ts] of the topics in :scopes (names separated by
-- commas): those of the backup each topic is restored from, and of the chain it depends on. The ids of these backups
-- are known to lie between :first_backup and :last_backup (restore_range). One partition after another, as tasks read
-- them.
SELECT
  f.source, f.scope, f.epoch, f.region, f.generation, f.backup_id, f.destination, f.path, f.format, f.codec, f.bytes,
  f.raw_bytes, f.sha256, f.entries, f.start_position, f.end_position, f.min_ts, f.max_ts
FROM files AS f
JOIN backups AS b ON f.backup_id = b.backup_id
JOIN chain_points AS t
  ON f.source = t.source AND f.scope = t.scope AND f.epoch = t.epoch AND f.generation = t.generation AND b.base = t.base
  AND b.link <= t.link AND t.link < b.unlinked
WHERE f.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), f.scope)
  AND t.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), t.scope)
  AND f.backup_id BETWEEN :first_backup AND :last_backup
  AND b.state = 'complete'
  AND f.role = 'data'
  AND CASE WHEN CAST(:to_ts AS BIGINT) IS NULL THEN t.newest ELSE :to_ts > t.covers_from AND :to_ts <= t.covers_to END
  AND (CAST(:from_ts AS BIGINT) IS NULL OR f.max_ts > CAST(:from_ts AS BIGINT))
  AND (CAST(:to_ts AS BIGINT) IS NULL OR f.min_ts <= CAST(:to_ts AS BIGINT))
ORDER BY f.scope, f.epoch, f.region, f.start_position, f.path
