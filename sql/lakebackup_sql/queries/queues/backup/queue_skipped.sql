-- The messages that backups of the engine :source skip at a user's request: entries of the audit log.
SELECT a.detail
FROM raw_audit AS a
WHERE a.action = 'skip message'
  AND a.subject = :source
ORDER BY a.at, a.detail
