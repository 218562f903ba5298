-- 8737d7a32ae51822 raw_backups raw_removals raw_snapshot_departures raw_snapshot_files
SELECT
  f.source,
  f.scope,
  f.region,
  f.name,
  f.role,
  f.bytes,
  f.mtime_ms,
  TIMESTAMP_MILLIS(
    CASE
      WHEN f.mtime_ms BETWEEN -62135596800000 AND 253402300799999
      THEN f.mtime_ms
    END
  ) AS mtime,
  f.mode,
  f.links,
  f.ctime_ns,
  f.inode,
  f.sha256,
  f.destination,
  f.path,
  f.position,
  f.backup_id,
  f.added_in,
  g.gone_in,
  g.gone_by,
  r.path IS NULL AS stored
FROM raw_snapshot_files AS f
JOIN raw_backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN (
  SELECT
    d.source,
    d.scope,
    d.region,
    d.name,
    d.added_in,
    d.gone_in,
    d.gone_by
  FROM raw_snapshot_departures AS d
  JOIN raw_backups AS e
    ON d.gone_by = e.backup_id
) AS g
  ON f.source = g.source
  AND f.scope = g.scope
  AND f.region = g.region
  AND f.name = g.name
  AND f.added_in = g.added_in
LEFT JOIN (
  SELECT DISTINCT
    destination,
    path
  FROM raw_removals
) AS r
  ON f.destination = r.destination AND f.path = r.path
