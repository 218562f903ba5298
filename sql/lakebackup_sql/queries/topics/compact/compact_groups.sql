-- What consumer groups had committed at the backup that a compaction is made from: for the topics in :scopes (names
-- separated by commas), and for topics that were gone; and the groups whose position is not saved.
SELECT
  g.group_id, g.protocol, g.state, coalesce(g.scope, '') AS scope, g.epoch, coalesce(g.region, '') AS region,
  coalesce(g.position, 0) AS position, g.leader_epoch, g.metadata, g.ts
FROM groups AS g
WHERE g.source = :source
  AND g.backup_id = :backup_id
  AND (g.epoch IS NULL OR ARRAY_CONTAINS(SPLIT(:scopes, ','), g.scope))
ORDER BY g.group_id, g.scope, try_cast(g.region AS BIGINT)
