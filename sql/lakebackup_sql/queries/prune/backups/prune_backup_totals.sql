-- What the backups of the relation leaving still hold and lose (see prune_removals).
SELECT
  f.backup_id,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes
FROM files AS f
JOIN leaving AS v ON f.backup_id = v.backup_id
WHERE f.format NOT IN ('queue-points', 'queue-positions', 'queue-transactions', 'queue-schemas')
GROUP BY f.backup_id
