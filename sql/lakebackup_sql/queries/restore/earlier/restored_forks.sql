-- Partitions of the topics :targets (see restored_until) that hold what was cut from the source's history since:
-- earlier restores wrote it before the backup that holds it went out of sync, whether or not that was deleted since.
SELECT t.scope, t.region, MIN(b.backup_id) AS backup_id
FROM translations AS t
JOIN raw_positions AS p
  ON t.source = p.source AND t.scope = p.scope AND t.epoch = p.epoch AND t.region = p.region
  AND t.to_position > p.start_position
JOIN raw_backups AS b ON p.backup_id = b.backup_id AND b.state IN ('out_of_sync', 'deleted')
JOIN raw_audit AS a
  ON b.backup_id = a.subject AND a.action = 'set_state' AND a.detail LIKE '%"state": "out_of_sync"%' AND t.at < a.at
WHERE t.source = :source
  AND t.cluster = :cluster
  AND ARRAY_CONTAINS(SPLIT(:targets, ','), CONCAT(t.scope, '=', t.target_epoch))
  AND (CAST(:restore_id AS STRING) IS NULL OR t.restore_id <> CAST(:restore_id AS STRING))
GROUP BY t.scope, t.region
ORDER BY t.scope, CAST(t.region AS BIGINT)
