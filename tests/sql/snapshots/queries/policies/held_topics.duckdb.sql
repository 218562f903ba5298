SELECT DISTINCT
  s.scope
FROM raw_scopes AS s
JOIN raw_backups AS b
  ON s.backup_id = b.backup_id
WHERE
  s.source = $source AND b.state = 'complete'
ORDER BY
  s.scope NULLS FIRST
