-- The groups that the newest backup of :source named without saving their position, such as share groups.
SELECT DISTINCT g.group_id, g.protocol
FROM groups AS g
JOIN (SELECT MAX(number) AS number FROM backups WHERE source = :source AND state = 'complete') AS n ON true
JOIN backups AS b ON g.backup_id = b.backup_id AND b.number = n.number
WHERE g.source = :source
  AND g.position IS NULL
ORDER BY g.group_id
