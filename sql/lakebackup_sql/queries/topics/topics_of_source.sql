-- The topics that backups of :source hold.
SELECT DISTINCT s.scope
FROM scopes AS s
WHERE s.source = :source
ORDER BY s.scope
