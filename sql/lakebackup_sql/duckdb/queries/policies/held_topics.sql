-- 75fd99a9f85224b4 raw_backups raw_scopes
SELECT DISTINCT
  s.scope
FROM raw_scopes AS s
JOIN raw_backups AS b
  ON s.backup_id = b.backup_id
WHERE
  s.source = $source AND b.state = 'complete'
ORDER BY
  s.scope NULLS FIRST
