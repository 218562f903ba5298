-- 4705b23c1141e7a7 obsolete_backups
SELECT
  o.backup_id
FROM obsolete_backups AS o
WHERE
  o.source = $source
  AND o.status IN ('VALID', 'KEEP')
  AND NOT o.reason IN ('needed', 'no_limit', 'unconfirmed', 'future')
ORDER BY
  o.backup_id NULLS FIRST
