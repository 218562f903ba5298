-- Why the topics in :scopes (names separated by commas) cannot be restored to :to_ts as they were: a gap that the chain
-- continues over within the generation to restore, or a time between the last backup before a gap and the one that
-- found it.
SELECT DISTINCT g.scope, g.region, g.reason, g.from_position, g.to_position, g.from_ts, g.to_ts
FROM gaps AS g
JOIN backups AS n ON g.backup_id = n.backup_id
JOIN chain_points AS t ON g.source = t.source AND g.scope = t.scope
LEFT JOIN scopes AS s
  ON g.backup_id = s.backup_id AND g.scope = s.scope AND g.epoch = s.epoch AND s.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), s.scope)
WHERE g.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), g.scope)
  AND n.state IN ('complete', 'deleted')
  AND CASE WHEN CAST(:to_ts AS BIGINT) IS NULL THEN t.newest ELSE :to_ts > t.covers_from AND :to_ts <= t.covers_to END
  AND (
    (
      g.bridged AND n.state = 'complete' AND g.epoch = t.epoch AND n.base = t.base AND n.link <= t.link AND t.link < n.unlinked
      AND s.generation = t.generation
    )
    OR (g.from_ts < CAST(:to_ts AS BIGINT) AND CAST(:to_ts AS BIGINT) < g.to_ts)
  )
ORDER BY g.scope, g.region, g.from_position
