-- Each source and topic that some backup has, in any state but deleted.
SELECT DISTINCT b.source, s.scope
FROM raw_backups AS b
LEFT JOIN raw_scopes AS s ON b.backup_id = s.backup_id
WHERE b.state <> 'deleted'
ORDER BY b.source, s.scope
