-- 2269b3bafbebe7bc files needs
SELECT
  f.backup_id,
  f.scope,
  f.region,
  f.role,
  f.destination,
  f.path,
  f.format,
  f.bytes,
  f.sha256,
  f.entries
FROM needs AS n
JOIN files AS f
  ON n.needed_id = f.backup_id
WHERE
  n.backup_id = $backup_id AND n.state = 'complete'
ORDER BY
  n.link NULLS FIRST,
  f.scope NULLS FIRST,
  f.region NULLS FIRST,
  f.path NULLS FIRST
