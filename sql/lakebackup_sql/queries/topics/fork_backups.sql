-- The backups of :source that hold what was cut from its history: those from :place on, newest first.
SELECT backup_id
FROM raw_backups
WHERE source = :source AND state = 'complete' AND place >= :place
ORDER BY place DESC, number DESC
