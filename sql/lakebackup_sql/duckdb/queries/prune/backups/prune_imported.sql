-- 1c89f886805a2eb1 obsolete_backups own_backups
SELECT
  o.backup_id,
  o.kind,
  o.level,
  o.end_ts,
  o.reason,
  o.because_of,
  o.files,
  o.bytes
FROM obsolete_backups AS o
ANTI JOIN own_backups AS b
  ON o.backup_id = b.backup_id
WHERE
  o.source = $source AND o.status = 'OBSOLETE'
ORDER BY
  o.place DESC,
  o.number DESC
