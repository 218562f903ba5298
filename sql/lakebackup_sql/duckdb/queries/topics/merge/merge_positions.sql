-- 8c6c6a588b955b7b positions scopes to_merge
SELECT
  p.scope,
  p.epoch,
  p.region,
  MIN(g.start_position) AS start_position,
  p.end_position,
  p.low_position,
  p.high_position,
  p.leader_epoch,
  p.ts,
  p.open_since
FROM positions AS p
JOIN scopes AS l
  ON p.backup_id = l.backup_id AND p.scope = l.scope AND p.epoch = l.epoch
JOIN positions AS g
  ON p.source = g.source
  AND p.scope = g.scope
  AND p.epoch = g.epoch
  AND p.region = g.region
JOIN to_merge AS m
  ON g.backup_id = m.backup_id
JOIN scopes AS s
  ON g.backup_id = s.backup_id
  AND g.scope = s.scope
  AND g.epoch = s.epoch
  AND l.generation = s.generation
WHERE
  p.source = $source AND p.backup_id = $last
GROUP BY
  p.scope,
  p.epoch,
  p.region,
  p.end_position,
  p.low_position,
  p.high_position,
  p.leader_epoch,
  p.ts,
  p.open_since
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST,
  TRY_CAST(p.region AS BIGINT) NULLS FIRST
