-- 0b40e8e760309911 raw_backups raw_scopes
SELECT DISTINCT
  b.source,
  s.scope
FROM raw_backups AS b
LEFT JOIN raw_scopes AS s
  ON b.backup_id = s.backup_id
WHERE
  b.state <> 'deleted'
ORDER BY
  b.source NULLS FIRST,
  s.scope NULLS FIRST
