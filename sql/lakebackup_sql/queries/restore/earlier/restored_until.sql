-- How far earlier restores wrote each partition into the topics :targets (source topic=id of the target topic,
-- separated by commas) of the cluster :cluster; to_ts: an instant after which they left records out. The restore
-- :restore_id itself (null: none) does not count.
SELECT
  t.scope, t.epoch, t.region,
  MAX(t.to_position) AS position,
  MAX(t.to_ts) AS to_ts
FROM translations AS t
WHERE t.source = :source
  AND t.cluster = :cluster
  AND ARRAY_CONTAINS(SPLIT(:targets, ','), CONCAT(t.scope, '=', t.target_epoch))
  AND (CAST(:restore_id AS STRING) IS NULL OR t.restore_id <> CAST(:restore_id AS STRING))
GROUP BY t.scope, t.epoch, t.region
ORDER BY t.scope, t.epoch, CAST(t.region AS BIGINT)
