-- The backups of a source that were deleted.
SELECT b.backup_id FROM raw_backups AS b WHERE b.source = :source AND b.state = 'deleted'
