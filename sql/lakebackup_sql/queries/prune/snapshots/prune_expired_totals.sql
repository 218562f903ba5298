-- What is deleted of each table of a source of snapshots with the backups of the relation leaving (see prune_expired),
-- and what stays though nothing needs it, since other files in its pack are needed.
WITH kept AS (
  SELECT
    b.source, b.number,
    MIN(CASE WHEN b.state <> 'deleted' AND v.backup_id IS NULL THEN b.number END) OVER (
      PARTITION BY b.source ORDER BY b.number DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS next
  FROM raw_backups AS b
  LEFT JOIN leaving AS v ON b.backup_id = v.backup_id
  WHERE b.source_kind = 'snapshot'
),
-- Several files may have one place.
places AS (
  SELECT
    s.destination, s.path, s.position,
    MAX(s.stored_bytes) AS bytes,
    MAX(CASE WHEN COALESCE(k.next < s.gone_in, k.next IS NOT NULL) THEN 1 ELSE 0 END) AS needed
  FROM snapshot_files AS s
  JOIN kept AS k ON s.source = k.source AND s.added_in = k.number
  GROUP BY s.destination, s.path, s.position
),
objects AS (
  SELECT
    destination, path,
    MAX(needed) AS needed,
    SUM(1 - needed) AS idle,
    SUM((1 - needed) * bytes) AS idle_bytes
  FROM places
  GROUP BY destination, path
)
SELECT
  f.scope,
  COUNT(CASE WHEN COALESCE(o.needed, 0) = 0 THEN 1 END) AS files,
  CAST(SUM(CASE WHEN COALESCE(o.needed, 0) = 0 THEN f.bytes ELSE 0 END) AS BIGINT) AS bytes,
  COUNT(*) AS of_files,
  CAST(SUM(f.bytes) AS BIGINT) AS of_bytes,
  CAST(SUM(CASE WHEN o.needed = 1 THEN o.idle ELSE 0 END) AS BIGINT) AS idle,
  CAST(SUM(CASE WHEN o.needed = 1 THEN o.idle_bytes ELSE 0 END) AS BIGINT) AS idle_bytes
FROM files AS f
LEFT JOIN objects AS o ON f.destination = o.destination AND f.path = o.path
WHERE f.source = :source
  AND f.format IN ('file', 'pack')
GROUP BY f.scope
ORDER BY f.scope
