-- The backups of a source that a policy or a person keeps for their own restore points. Those that stay because others
-- need them, or because nothing limits the source, leave what they hold to the topics' own retention.
SELECT o.backup_id
FROM obsolete_backups AS o
WHERE o.source = :source
  AND o.reason IN ('held', 'inherited', 'window', 'redundancy', 'minimum')
  AND o.status <> 'OBSOLETE'
ORDER BY o.backup_id
