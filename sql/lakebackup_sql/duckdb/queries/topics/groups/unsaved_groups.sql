-- b08a0a56c3abff03 backups groups
SELECT DISTINCT
  g.group_id,
  g.protocol
FROM groups AS g
JOIN (
  SELECT
    MAX(number) AS number
  FROM backups
  WHERE
    source = $source AND state = 'complete'
) AS n
  ON TRUE
JOIN backups AS b
  ON g.backup_id = b.backup_id AND b.number = n.number
WHERE
  g.source = $source AND g.position IS NULL
ORDER BY
  g.group_id NULLS FIRST
