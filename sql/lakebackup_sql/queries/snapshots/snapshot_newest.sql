-- The newest backup of a source, whatever has become of it: the next one is compared with what it had.
SELECT b.backup_id, b.number, b.end_ts, b.source_kind
FROM raw_backups AS b
WHERE b.source = :source
ORDER BY b.number DESC
LIMIT 1
