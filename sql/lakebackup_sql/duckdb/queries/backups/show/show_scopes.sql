-- bbb26fd1edcbf8be files positions scopes
SELECT
  s.scope,
  s.epoch,
  s.regions,
  s.replication,
  s.settings,
  p.start_positions,
  p.end_positions,
  COALESCE(f.files, 0) AS files,
  COALESCE(f.bytes, 0) AS bytes,
  COALESCE(f.entries, 0) AS entries,
  f.min_ts,
  f.max_ts
FROM scopes AS s
LEFT JOIN (
  SELECT
    scope,
    epoch,
    CAST(SUM(start_position) AS BIGINT) AS start_positions,
    CAST(SUM(end_position) AS BIGINT) AS end_positions
  FROM positions
  WHERE
    backup_id = $backup_id
  GROUP BY
    scope,
    epoch
) AS p
  ON p.scope = s.scope AND p.epoch = s.epoch
LEFT JOIN (
  SELECT
    scope,
    epoch,
    COUNT(*) AS files,
    CAST(SUM(bytes) AS BIGINT) AS bytes,
    CAST(SUM(entries) AS BIGINT) AS entries,
    MIN(min_ts) AS min_ts,
    MAX(max_ts) AS max_ts
  FROM files
  WHERE
    backup_id = $backup_id
  GROUP BY
    scope,
    epoch
) AS f
  ON f.scope = s.scope AND f.epoch = s.epoch
WHERE
  s.backup_id = $backup_id
ORDER BY
  s.scope NULLS FIRST
