-- The backup that `latest` means: of a source, or of all, the one that ended last of those that can be restored. Of this
-- program's own a later number ended later, whatever the clocks were.
SELECT n.backup_id
FROM (
  SELECT
    b.backup_id, b.source, b.number,
    MIN(b.finished_at) OVER (
      PARTITION BY b.source, CASE WHEN k.source_kind IS NULL THEN b.backup_id END ORDER BY b.number DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS ended_at
  FROM backups AS b
  LEFT JOIN own_kinds AS k ON b.source_kind = k.source_kind
  LEFT ANTI JOIN pruned_backups AS p ON b.backup_id = p.backup_id
  WHERE b.state = 'complete' AND b.intact
    AND (CAST(:source AS STRING) IS NULL OR b.source = :source)
) AS n
ORDER BY n.ended_at DESC NULLS LAST, n.source, n.number DESC
LIMIT 1
