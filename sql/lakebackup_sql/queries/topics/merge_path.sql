-- The backups that :backup_id needs, itself the last, in the order of the chain.
SELECT b.*
FROM backups AS t
JOIN backups AS b
  ON t.source = b.source
  AND t.base = b.base
  AND b.link <= t.link
  AND t.link < b.unlinked
WHERE t.backup_id = :backup_id
  AND b.state = 'complete'
ORDER BY b.link
