-- The gaps that the backups to merge (relation to_merge: backup_id) found. bridged: what is merged continues over it,
-- in the generation that :last, the last of them, has.
SELECT
  g.scope, g.epoch, g.region, g.from_position, g.to_position, g.reason, g.from_ts, g.to_ts,
  g.bridged AND l.backup_id IS NOT NULL AS bridged
FROM gaps AS g
JOIN to_merge AS m ON g.backup_id = m.backup_id
LEFT JOIN scopes AS s ON g.backup_id = s.backup_id AND g.scope = s.scope AND g.epoch = s.epoch
LEFT JOIN scopes AS l ON l.backup_id = :last AND s.scope = l.scope AND s.epoch = l.epoch AND s.generation = l.generation
WHERE g.source = :source
ORDER BY g.scope, g.epoch, CAST(g.region AS BIGINT), g.from_position, g.from_ts
