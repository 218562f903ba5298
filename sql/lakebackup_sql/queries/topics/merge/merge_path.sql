-- The backups that :backup_id needs, itself the last, in the order of the chain.
SELECT b.*
FROM needs AS n
JOIN backups AS b ON n.needed_id = b.backup_id
WHERE n.backup_id = :backup_id
  AND n.state = 'complete'
ORDER BY b.link
