-- The backups of a source of another program that are obsolete by its policy, each before those that it depends on, with
-- what they hold.
SELECT o.backup_id, o.kind, o.level, o.end_ts, o.reason, o.because_of, o.files, o.bytes
FROM obsolete_backups AS o
LEFT ANTI JOIN own_backups AS b ON o.backup_id = b.backup_id
WHERE o.source = :source
  AND o.status = 'OBSOLETE'
ORDER BY o.place DESC, o.number DESC
