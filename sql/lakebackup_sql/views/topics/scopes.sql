-- Topics as they were at committed backups.
-- settings: JSON: what the topic overrides, by name; under inherited, by origin (broker, default), what else was in
--   force
SELECT s.*
FROM raw_scopes AS s
JOIN raw_backups AS b ON b.backup_id = s.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
