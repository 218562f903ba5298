-- The sources that have a complete backup of a snapshot.
SELECT DISTINCT b.source
FROM backups AS b
WHERE b.source_kind = 'snapshot' AND b.state = 'complete'
ORDER BY b.source
