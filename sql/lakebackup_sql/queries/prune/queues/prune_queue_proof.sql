-- Backups of an engine's queues that would lose files which one that stays, and can be restored, needs, by the relation
-- doomed (those in the relation leaving go) or because they were deleted before. No row: the prune is safe. Needed are
-- the messages of the whole chain, and the engine's own files of each backup that stays.
SELECT
  n.source, n.number,
  COUNT(*) AS files,
  MIN(f.path) AS path
FROM (
  SELECT
    b.source, b.backup_id, b.number, b.state, b.unlinked,
    v.backup_id IS NULL AND b.state = 'complete' AND b.chained AS stays,
    MIN(CASE WHEN v.backup_id IS NULL AND b.state = 'complete' AND b.chained THEN b.link END) OVER (
      PARTITION BY b.base ORDER BY b.link DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS next
  FROM backups AS b
  LEFT JOIN leaving AS v ON b.backup_id = v.backup_id
  WHERE b.source = :source
) AS n
JOIN raw_files AS f ON n.backup_id = f.backup_id
LEFT JOIN (SELECT DISTINCT destination, path FROM doomed) AS d ON f.destination = d.destination AND f.path = d.path
LEFT JOIN raw_removals AS r ON f.destination = r.destination AND f.path = r.path
LEFT JOIN emptied_backups AS e ON f.backup_id = e.backup_id
WHERE n.state = 'complete'
  AND n.next < n.unlinked
  AND (f.role = 'data' OR (n.stays AND f.role IN ('config', 'schema')))
  AND (d.path IS NOT NULL OR r.path IS NOT NULL OR e.backup_id IS NOT NULL)
GROUP BY n.source, n.number
ORDER BY n.number
LIMIT 10
