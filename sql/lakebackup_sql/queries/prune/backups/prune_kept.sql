-- The backups of a source that a policy or a person keeps for their own restore points. Those that stay because others
-- need them, because nothing limits the source, unconfirmed or from the future, leave what they hold to the topics' own retention.
SELECT o.backup_id
FROM obsolete_backups AS o
WHERE o.source = :source
  AND o.status IN ('VALID', 'KEEP')
  AND o.reason NOT IN ('needed', 'no_limit', 'unconfirmed', 'future')
ORDER BY o.backup_id
