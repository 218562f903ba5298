-- 0f8d57538ec156dd obsolete_backups raw_backups
SELECT
  c.source,
  c.base,
  c.from_ts,
  c.to_ts,
  c.backups,
  c.files,
  c.items,
  c.bytes,
  c.held,
  c.obsolete,
  c.obsolete_bytes,
  c.source_obsolete,
  c.source_obsolete_bytes
FROM (
  SELECT
    o.source,
    o.base,
    MIN(COALESCE(EPOCH_MS(o.end_time), o.end_ts)) AS from_ts,
    MAX(COALESCE(EPOCH_MS(o.end_time), o.end_ts)) AS to_ts,
    COUNT(*) AS backups,
    CAST(SUM(o.files) AS BIGINT) AS files,
    CAST(SUM(b.entries) AS BIGINT) AS items,
    CAST(SUM(o.bytes) AS BIGINT) AS bytes,
    COUNT(CASE WHEN o.status = 'KEEP' THEN 1 END) AS held,
    COUNT(CASE WHEN o.status = 'OBSOLETE' THEN 1 END) AS obsolete,
    CAST(SUM(CASE WHEN o.status = 'OBSOLETE' THEN o.bytes ELSE 0 END) AS BIGINT) AS obsolete_bytes,
    TRY_CAST(SUM(COUNT(CASE WHEN o.status = 'OBSOLETE' THEN 1 END)) OVER (PARTITION BY o.source) AS BIGINT) AS source_obsolete,
    TRY_CAST(SUM(SUM(CASE WHEN o.status = 'OBSOLETE' THEN o.bytes ELSE 0 END)) OVER (PARTITION BY o.source) AS BIGINT) AS source_obsolete_bytes,
    ROW_NUMBER() OVER (PARTITION BY o.source ORDER BY MAX(o.number) DESC) AS nth
  FROM obsolete_backups AS o
  JOIN raw_backups AS b
    ON o.backup_id = b.backup_id
  WHERE
    o.status <> 'DELETED'
  GROUP BY
    o.source,
    o.base
) AS c
WHERE
  c.nth <= $chains
ORDER BY
  c.source NULLS FIRST,
  c.nth NULLS FIRST
