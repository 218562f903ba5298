-- a118aa695849c6e0 backups chain_points gaps scopes
SELECT DISTINCT
  g.scope,
  g.region,
  g.reason,
  g.from_position,
  g.to_position,
  g.from_ts,
  g.to_ts
FROM gaps AS g
JOIN backups AS n
  ON g.backup_id = n.backup_id
JOIN chain_points AS t
  ON g.source = t.source AND g.scope = t.scope
LEFT JOIN scopes AS s
  ON g.backup_id = s.backup_id
  AND g.scope = s.scope
  AND g.epoch = s.epoch
  AND s.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), s.scope)
WHERE
  g.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), g.scope)
  AND n.state IN ('complete', 'deleted')
  AND CASE
    WHEN TRY_CAST($to_ts AS BIGINT) IS NULL
    THEN t.newest
    ELSE $to_ts > t.covers_from AND $to_ts <= t.covers_to
  END
  AND (
    (
      g.bridged
      AND n.state = 'complete'
      AND g.epoch = t.epoch
      AND n.base = t.base
      AND n.link <= t.link
      AND t.link < n.unlinked
      AND s.generation = t.generation
    )
    OR (
      g.from_ts < TRY_CAST($to_ts AS BIGINT) AND TRY_CAST($to_ts AS BIGINT) < g.to_ts
    )
  )
ORDER BY
  g.scope NULLS FIRST,
  g.region NULLS FIRST,
  g.from_position NULLS FIRST
