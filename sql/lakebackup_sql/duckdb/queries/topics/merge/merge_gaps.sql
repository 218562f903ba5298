-- a5665aa04f811bfd gaps scopes to_merge
SELECT
  g.scope,
  g.epoch,
  g.region,
  g.from_position,
  g.to_position,
  g.reason,
  g.from_ts,
  g.to_ts,
  g.bridged AND NOT l.backup_id IS NULL AS bridged
FROM gaps AS g
JOIN to_merge AS m
  ON g.backup_id = m.backup_id
LEFT JOIN scopes AS s
  ON g.backup_id = s.backup_id AND g.scope = s.scope AND g.epoch = s.epoch
LEFT JOIN scopes AS l
  ON l.backup_id = $last
  AND s.scope = l.scope
  AND s.epoch = l.epoch
  AND s.generation = l.generation
WHERE
  g.source = $source
ORDER BY
  g.scope NULLS FIRST,
  g.epoch NULLS FIRST,
  TRY_CAST(g.region AS BIGINT) NULLS FIRST,
  g.from_position NULLS FIRST,
  g.from_ts NULLS FIRST
