-- f7549203bc5f75cf backups chain_points positions scopes
SELECT
  p.scope,
  p.epoch,
  p.region,
  o.start_position,
  p.end_position,
  p.low_position,
  p.high_position,
  p.leader_epoch,
  p.ts,
  p.open_since
FROM chain_points AS t
JOIN positions AS p
  ON t.backup_id = p.backup_id AND t.scope = p.scope AND t.epoch = p.epoch
JOIN (
  SELECT
    g.scope,
    g.epoch,
    g.region,
    s.generation,
    b.base,
    MIN(g.start_position) AS start_position
  FROM positions AS g
  JOIN scopes AS s
    ON g.backup_id = s.backup_id AND g.scope = s.scope AND g.epoch = s.epoch
  JOIN backups AS b
    ON g.backup_id = b.backup_id
  WHERE
    g.source = $source AND b.state = 'complete'
  GROUP BY
    g.scope,
    g.epoch,
    g.region,
    s.generation,
    b.base
) AS o
  ON t.scope = o.scope
  AND t.epoch = o.epoch
  AND t.generation = o.generation
  AND t.base = o.base
  AND p.region = o.region
WHERE
  t.source = $source
  AND t.newest
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
ORDER BY
  p.scope NULLS FIRST,
  TRY_CAST(p.region AS BIGINT) NULLS FIRST
