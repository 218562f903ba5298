-- One row per committed backup and topic: what the topic's partitions, replication and settings were then.
-- settings: JSON: the settings that the topic overrides, by name; under inherited: the other settings in force, by
--   origin (broker, default)
-- complete_time: complete_ts, in UTC; null: the backup is complete up to its end, or it is not known
SELECT s.*, timestamp_millis(NULLIF(s.complete_ts, -1)) AS complete_time
FROM raw_scopes AS s
JOIN raw_backups AS b ON b.backup_id = s.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
