-- 1ed1122fc8928b90 backups needs
SELECT
  b.*
FROM needs AS n
JOIN backups AS b
  ON n.needed_id = b.backup_id
WHERE
  n.backup_id = $backup_id AND n.state = 'complete'
ORDER BY
  b.link NULLS FIRST
