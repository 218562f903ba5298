-- Topics as they were at committed backups.
-- settings: JSON: what the topic overrides, by name; under inherited, by origin (broker, default), what else was in
--   force
-- complete_time: complete_ts, in UTC; null: the backup is complete up to its end, or it is not known
SELECT s.*, timestamp_millis(NULLIF(s.complete_ts, -1)) AS complete_time
FROM raw_scopes AS s
JOIN raw_backups AS b ON b.backup_id = s.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
