-- Every file of the backups that restoring the imported backup :backup_id needs, in the order of what they hold.
SELECT f.source, f.backup_id, f.key_id, f.scope, f.region, f.role, f.destination, f.path, f.format, f.bytes, f.sha256, f.entries
FROM needs AS n
JOIN files AS f ON n.needed_id = f.backup_id
WHERE n.backup_id = :backup_id
  AND n.state = 'complete'
ORDER BY n.link, f.scope, f.region, f.path
