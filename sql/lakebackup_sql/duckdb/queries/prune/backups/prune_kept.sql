-- 991709f5046d5a12 obsolete_backups
SELECT
  o.backup_id
FROM obsolete_backups AS o
WHERE
  o.source = $source
  AND o.status IN ('VALID', 'KEEP')
  AND NOT o.reason IN ('needed', 'no_limit', 'unconfirmed')
ORDER BY
  o.backup_id NULLS FIRST
