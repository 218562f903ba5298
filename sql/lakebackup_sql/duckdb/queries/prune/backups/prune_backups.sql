-- 79b9c0129a813a16 obsolete_backups own_backups
SELECT
  o.backup_id,
  o.kind,
  o.level,
  o.end_ts,
  o.reason,
  o.because_of
FROM obsolete_backups AS o
JOIN own_backups AS b
  ON o.backup_id = b.backup_id
WHERE
  o.source = $source AND o.status = 'OBSOLETE'
ORDER BY
  o.place DESC,
  o.number DESC
