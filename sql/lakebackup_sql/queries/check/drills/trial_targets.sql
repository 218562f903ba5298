-- What a trial restore covers: the newest restore point of each topic, or the backups whose ids are in :backup_ids
-- (separated by commas), with the topics that each one covers up to the same instant. Of a change feed, its log up to
-- the newest checkpoint, or a full.
SELECT
  t.source, b.source_kind, t.destination, t.backup_id,
  MAX(t.kind) AS kind,
  t.covers_to AS to_ts,
  ARRAY_JOIN(SORT_ARRAY(COLLECT_LIST(t.scope)), ',') AS scopes
FROM chain_points AS t
JOIN raw_backups AS b ON t.backup_id = b.backup_id
WHERE (:backup_ids = '' AND t.newest)
  OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), t.backup_id)
GROUP BY t.source, b.source_kind, t.destination, t.backup_id, t.covers_to
ORDER BY t.source, t.backup_id, t.covers_to
