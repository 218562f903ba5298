-- Every file of the backups that restoring the imported backup :backup_id needs, in the order of what they hold.
SELECT
  f.backup_id, b.link, f.scope, f.region, f.role, f.destination, f.path, f.format, f.bytes, f.sha256, f.entries
FROM backups AS t
JOIN backups AS b
  ON b.source = t.source
  AND b.base = t.base
  AND b.link <= t.link
  AND t.link < b.unlinked
JOIN files AS f
  ON b.backup_id = f.backup_id
WHERE t.backup_id = :backup_id
  AND b.state = 'complete'
ORDER BY b.link, f.scope, f.region, f.path
