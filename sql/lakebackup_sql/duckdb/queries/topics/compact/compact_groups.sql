-- 3479c12a040a8046 groups
SELECT
  g.group_id,
  g.protocol,
  g.state,
  COALESCE(g.scope, '') AS scope,
  g.epoch,
  COALESCE(g.region, '') AS region,
  COALESCE(g.position, 0) AS position,
  g.leader_epoch,
  g.metadata,
  g.ts
FROM groups AS g
WHERE
  g.source = $source
  AND g.backup_id = $backup_id
  AND (
    g.epoch IS NULL OR ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), g.scope)
  )
ORDER BY
  g.group_id NULLS FIRST,
  g.scope NULLS FIRST,
  TRY_CAST(g.region AS BIGINT) NULLS FIRST
