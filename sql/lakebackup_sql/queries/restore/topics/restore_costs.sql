-- What the complete backups up to :backup_id have of the topics in :scopes (names separated by commas) that are
-- restored from that one: files with records in (:from_ts, :to_ts], as restore_files chooses them.
SELECT
  b.backup_id,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries
FROM files AS f
JOIN chain_points AS t ON t.source = f.source AND t.scope = f.scope AND t.epoch = f.epoch AND t.generation = f.generation
JOIN backups AS b ON f.backup_id = b.backup_id
WHERE t.backup_id = :backup_id
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), t.scope)
  AND b.state = 'complete'
  AND b.place <= t.place
  AND f.role = 'data'
  AND (CAST(:from_ts AS BIGINT) IS NULL OR f.max_ts > CAST(:from_ts AS BIGINT))
  AND (CAST(:to_ts AS BIGINT) IS NULL OR f.min_ts <= CAST(:to_ts AS BIGINT))
GROUP BY b.backup_id
ORDER BY b.backup_id
