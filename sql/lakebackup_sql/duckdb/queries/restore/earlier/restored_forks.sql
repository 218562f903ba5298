-- 0da195a6509d2e42 raw_audit raw_backups raw_positions translations
SELECT
  t.scope,
  t.region,
  MIN(b.backup_id) AS backup_id
FROM translations AS t
JOIN raw_positions AS p
  ON t.source = p.source
  AND t.scope = p.scope
  AND t.epoch = p.epoch
  AND t.region = p.region
  AND t.to_position > p.start_position
JOIN raw_backups AS b
  ON p.backup_id = b.backup_id AND b.state IN ('out_of_sync', 'deleted')
JOIN raw_audit AS a
  ON b.backup_id = a.subject
  AND a.action = 'set_state'
  AND a.detail LIKE '%"state": "out_of_sync"%'
  AND t."at" < a."at"
WHERE
  t.source = $source
  AND t.cluster = $cluster
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($targets, ','), t.scope || '=' || t.target_epoch)
  AND (
    TRY_CAST($restore_id AS TEXT) IS NULL
    OR t.restore_id <> TRY_CAST($restore_id AS TEXT)
  )
GROUP BY
  t.scope,
  t.region
ORDER BY
  t.scope NULLS FIRST,
  TRY_CAST(t.region AS BIGINT) NULLS FIRST
