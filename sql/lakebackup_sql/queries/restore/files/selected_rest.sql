-- Of the files chosen for a restore (relation selected) those that earlier restores into the topics :targets (source
-- topic=id of the target topic, separated by commas) of the cluster :cluster did not write completely. The restore
-- :restore_id itself (null: none) does not count.
SELECT f.*
FROM selected AS f
LEFT JOIN (
  SELECT t.scope, t.epoch, t.region, MAX(t.to_position) AS position
  FROM translations AS t
  WHERE t.source = :source
    AND t.cluster = :cluster
    AND ARRAY_CONTAINS(SPLIT(:targets, ','), CONCAT(t.scope, '=', t.target_epoch))
    AND (CAST(:restore_id AS STRING) IS NULL OR t.restore_id <> CAST(:restore_id AS STRING))
  GROUP BY t.scope, t.epoch, t.region
) AS r ON f.scope = r.scope AND f.epoch = r.epoch AND f.region = r.region
WHERE r.position IS NULL OR f.end_position > r.position
ORDER BY f.scope, f.epoch, f.region, f.start_position, f.path
