-- The objects of a source of snapshots to delete with the backups of the relation leaving, as rows of removals without the prune: no
-- backup that stays, of any source, has a file in them.
WITH kept AS (
  SELECT
    b.source, b.number,
    MIN(CASE WHEN b.state <> 'deleted' AND v.backup_id IS NULL THEN b.number END) OVER (
      PARTITION BY b.source ORDER BY b.number DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS next
  FROM raw_backups AS b
  LEFT JOIN leaving AS v ON b.backup_id = v.backup_id
  WHERE b.source_kind = 'snapshot'
)
SELECT
  f.source, f.destination, f.path, f.backup_id, f.scope, f.epoch, f.region, f.bytes,
  'expired' AS reason
FROM files AS f
LEFT ANTI JOIN (
  SELECT s.destination, s.path
  FROM snapshot_files AS s
  JOIN kept AS k ON s.source = k.source AND s.added_in = k.number
  WHERE COALESCE(k.next < s.gone_in, k.next IS NOT NULL)
) AS n ON f.destination = n.destination AND f.path = n.path
WHERE f.source = :source
  AND f.format IN ('file', 'pack')
ORDER BY f.backup_id DESC, f.path DESC
