-- 1575a1d49a299ec5 faults files
SELECT
  f.role,
  f.destination,
  f.path,
  f.bytes,
  f.sha256,
  c.outcome
FROM files AS f
LEFT JOIN faults AS c
  ON f.destination = c.destination AND f.path = c.path
WHERE
  f.source = $source
  AND (
    (
      f.role = 'schema' AND f.backup_id = $backup_id
    )
    OR (
      f.role = 'config' AND f.backup_id = $config_id
    )
  )
  AND f.format = 'file'
ORDER BY
  f.role NULLS FIRST,
  f.path NULLS FIRST
