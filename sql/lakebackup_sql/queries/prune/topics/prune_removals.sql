-- The files of :source that cutting the partitions of the relation cuts deletes, and all files of the backups of the
-- relation leaving, as rows of removals without the prune. Those with the rows of a backup of queues stay as proof.
SELECT
  f.source, f.destination, f.path, f.backup_id, f.scope, f.epoch, f.region, f.bytes,
  CASE
    WHEN f.generation < c.generation THEN 'generation'
    WHEN f.end_position <= c.time_floor THEN 'time'
    ELSE 'size'
  END AS reason
FROM files AS f
JOIN cuts AS c ON f.source = c.source AND f.scope = c.scope AND f.epoch = c.epoch AND f.region = c.region
LEFT ANTI JOIN leaving AS v ON f.backup_id = v.backup_id
WHERE f.source = :source
  AND f.role = 'data'
  AND (f.generation < c.generation OR f.end_position <= c.low_position)
UNION ALL
SELECT
  w.source, w.destination, w.path, w.backup_id, w.scope, w.epoch, w.region, w.bytes, v.reason
FROM files AS w
JOIN leaving AS v ON w.backup_id = v.backup_id
WHERE w.source = :source
  AND w.format NOT IN ('queue-points', 'queue-positions', 'queue-transactions', 'queue-schemas')
ORDER BY backup_id DESC, path DESC
