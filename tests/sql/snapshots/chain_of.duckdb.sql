SELECT
  b.*
FROM backups AS b
JOIN backups AS t
  ON t.base = b.base AND t.branch = b.branch AND t.source = b.source
WHERE
  t.backup_id = $backup_id
  AND b.state = 'complete'
  AND b.chain_position <= t.chain_position
ORDER BY
  b.chain_position NULLS FIRST
