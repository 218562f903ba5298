-- 38a253dd0b24a248 scopes
SELECT
  s.scope,
  s.epoch,
  s.regions,
  s.replication,
  s.settings
FROM scopes AS s
WHERE
  s.source = $source AND s.backup_id = $backup_id
ORDER BY
  s.scope NULLS FIRST
