-- 80a00f7ff4d04fb9 obsolete_backups
SELECT
  o.backup_id
FROM obsolete_backups AS o
WHERE
  o.source = $source
  AND o.reason IN ('held', 'inherited', 'window', 'redundancy', 'minimum')
  AND o.status <> 'OBSOLETE'
ORDER BY
  o.backup_id NULLS FIRST
