-- Topics of a backup: partitions, offsets covered, and the files it added.
SELECT
  s.scope, s.epoch, s.regions, s.replication, s.settings, p.start_positions, p.end_positions,
  coalesce(f.files, 0) AS files, coalesce(f.bytes, 0) AS bytes, coalesce(f.entries, 0) AS entries,
  f.min_ts, f.max_ts
FROM scopes AS s
LEFT JOIN (
  SELECT scope, epoch, CAST(sum(start_position) AS BIGINT) AS start_positions, CAST(sum(end_position) AS BIGINT) AS end_positions
  FROM positions WHERE backup_id = :backup_id GROUP BY scope, epoch
) AS p ON p.scope = s.scope AND p.epoch = s.epoch
LEFT JOIN (
  SELECT
    scope, epoch, count(*) AS files, CAST(sum(bytes) AS BIGINT) AS bytes, CAST(sum(entries) AS BIGINT) AS entries,
    min(min_ts) AS min_ts, max(max_ts) AS max_ts
  FROM files WHERE backup_id = :backup_id GROUP BY scope, epoch
) AS f ON f.scope = s.scope AND f.epoch = s.epoch
WHERE s.backup_id = :backup_id
ORDER BY s.scope
