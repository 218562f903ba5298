-- Backups of the snapshots of the engine :source that are held because fulls of its queues depend on them, and on which
-- none does any more once those in the relation leaving are gone. What a person holds is left out.
SELECT h.source, h.backup_id
FROM holds AS h
JOIN raw_queue_points AS p ON h.backup_id = p.snapshot_id
JOIN raw_backups AS b ON p.backup_id = b.backup_id
LEFT JOIN leaving AS v ON p.backup_id = v.backup_id
WHERE p.source = :source
  AND h.reason LIKE CONCAT('the full % of ', p.source, ' stands on it')
GROUP BY h.source, h.backup_id
HAVING MAX(CASE WHEN b.state <> 'deleted' AND v.backup_id IS NULL THEN 1 ELSE 0 END) = 0
ORDER BY h.backup_id
