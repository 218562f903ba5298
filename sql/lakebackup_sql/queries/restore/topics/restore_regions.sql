-- From where to where the backups hold each partition of the topics in :scopes (names separated by commas), as they are
-- restored at :to_ts (null: the newest): what was pruned and earlier generations lie before, what no backup reached
-- after. :first_backup, :last_backup: as restore_range has them.
SELECT
  p.scope, p.epoch, p.region,
  GREATEST(MIN(p.start_position), COALESCE(MAX(l.low_position), 0)) AS start_position,
  MAX(CASE WHEN p.backup_id = t.backup_id THEN p.end_position END) AS end_position
FROM positions AS p
JOIN backups AS b ON p.backup_id = b.backup_id
JOIN scopes AS s ON p.backup_id = s.backup_id AND p.scope = s.scope AND p.epoch = s.epoch
JOIN chain_points AS t
  ON p.source = t.source AND p.scope = t.scope AND p.epoch = t.epoch AND s.generation = t.generation AND b.base = t.base
  AND b.link <= t.link AND t.link < b.unlinked
LEFT JOIN floors AS l ON p.source = l.source AND p.scope = l.scope AND p.epoch = l.epoch AND p.region = l.region
WHERE p.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), p.scope)
  AND p.backup_id BETWEEN :first_backup AND :last_backup
  AND s.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), s.scope)
  AND b.state = 'complete'
  AND CASE WHEN CAST(:to_ts AS BIGINT) IS NULL THEN t.newest ELSE :to_ts > t.covers_from AND :to_ts <= t.covers_to END
GROUP BY p.scope, p.epoch, p.region
HAVING MAX(CASE WHEN p.backup_id = t.backup_id THEN p.end_position END) IS NOT NULL
ORDER BY p.scope, p.epoch, CAST(p.region AS BIGINT)
