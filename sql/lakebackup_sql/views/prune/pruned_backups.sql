-- Backups of compacted topics that nothing can be restored from any more: of each of their topics, a prune removed the
-- generation that they hold.
SELECT s.source, s.backup_id
FROM raw_scopes AS s
LEFT JOIN scope_floors AS l ON s.source = l.source AND s.scope = l.scope AND s.epoch = l.epoch
WHERE s.source IN (SELECT source FROM raw_floors WHERE generation > 0)
GROUP BY s.source, s.backup_id
HAVING MIN(CASE WHEN s.generation < l.generation THEN 1 ELSE 0 END) = 1
