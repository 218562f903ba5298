-- One row per recipient of a data key: who can open the encrypted files of a backup. An interrupted run that was
-- resumed has a key of its own for what each of its runs wrote. Deleted backups are left out, except for keys of stored
-- objects of a snapshot: later backups may have files in them.
-- created_time: created_at, in UTC
-- wrapped_time: wrapped_at, in UTC
SELECT
  k.key_id, k.source, k.backup_id, k.recipient, k.created_at, k.wrapped_at,
  timestamp_micros(k.created_at) AS created_time,
  timestamp_micros(k.wrapped_at) AS wrapped_time
FROM raw_data_keys AS k
JOIN raw_backups AS b ON k.backup_id = b.backup_id
JOIN (
  SELECT key_id, MAX(wrapped_at) AS wrapped_at FROM raw_data_keys GROUP BY key_id
) AS l ON k.key_id = l.key_id AND k.wrapped_at = l.wrapped_at
LEFT JOIN (
  SELECT DISTINCT key_id FROM files WHERE key_id IS NOT NULL AND format IN ('file', 'pack')
) AS f ON k.key_id = f.key_id
WHERE b.state <> 'deleted' OR f.key_id IS NOT NULL
