-- Where :to_ts lies before the end of the backup that covers it: what that backup read of each partition of the
-- topics in :scopes (names separated by commas). entries, min_ts: of all its files; null: it has none. The ids of these
-- backups are known to lie between :first_backup and :last_backup.
-- before_ts: the end of the restore point before, null: none is; after_ts: its own.
SELECT
  t.scope, p.region, t.backup_id, p.start_position, p.end_position,
  CAST(SUM(f.entries) AS BIGINT) AS entries,
  MIN(f.min_ts) AS min_ts,
  CASE WHEN t.covers_from < 0 THEN NULL ELSE t.covers_from END AS before_ts,
  t.covers_to AS after_ts
FROM chain_points AS t
JOIN raw_positions AS p ON t.backup_id = p.backup_id AND t.scope = p.scope AND t.epoch = p.epoch
LEFT JOIN raw_files AS f
  ON t.backup_id = f.backup_id AND f.backup_id BETWEEN :first_backup AND :last_backup AND f.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), f.scope) AND f.role = 'data'
  AND p.scope = f.scope AND p.epoch = f.epoch AND p.region = f.region
WHERE t.source = :source
  AND p.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), p.scope)
  AND p.backup_id BETWEEN :first_backup AND :last_backup
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), t.scope)
  AND t.covers_from < CAST(:to_ts AS BIGINT)
  AND CAST(:to_ts AS BIGINT) < t.covers_to
GROUP BY t.scope, p.region, t.backup_id, p.start_position, p.end_position, t.covers_from, t.covers_to
ORDER BY t.scope, CAST(p.region AS BIGINT)
