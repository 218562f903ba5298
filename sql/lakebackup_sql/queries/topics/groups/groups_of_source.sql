-- The consumer groups whose positions backups of :source saved.
SELECT DISTINCT g.group_id
FROM groups AS g
WHERE g.source = :source
  AND g.position IS NOT NULL
ORDER BY g.group_id
