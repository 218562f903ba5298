-- 1343d9146d853053 holds leaving raw_backups raw_queue_points
SELECT
  h.source,
  h.backup_id
FROM holds AS h
JOIN raw_queue_points AS p
  ON h.backup_id = p.snapshot_id
JOIN raw_backups AS b
  ON p.backup_id = b.backup_id
LEFT JOIN leaving AS v
  ON p.backup_id = v.backup_id
WHERE
  p.source = $source
  AND h.reason LIKE 'the full % of ' || p.source || ' stands on it'
GROUP BY
  h.source,
  h.backup_id
HAVING
  MAX(CASE WHEN b.state <> 'deleted' AND v.backup_id IS NULL THEN 1 ELSE 0 END) = 0
ORDER BY
  h.backup_id NULLS FIRST
