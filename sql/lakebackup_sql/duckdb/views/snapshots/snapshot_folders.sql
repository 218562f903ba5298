-- cf04274e3a3e4e4a raw_backups raw_snapshot_folders
SELECT
  f.source,
  f.scope,
  f.region,
  f.name,
  f.mode,
  f.mtime_ms,
  f.backup_id,
  f.added_in,
  f.gone_in,
  f.gone_by
FROM (
  SELECT
    d.source,
    d.scope,
    d.region,
    d.name,
    d.mode,
    d.mtime_ms,
    d.backup_id,
    d.added_in,
    LEAD(d.added_in) OVER versions AS gone_in,
    LEAD(d.backup_id) OVER versions AS gone_by
  FROM raw_snapshot_folders AS d
  JOIN raw_backups AS b
    ON d.backup_id = b.backup_id
  WINDOW versions AS (PARTITION BY d.source, d.scope, d.region, d.name ORDER BY d.added_in NULLS FIRST)
) AS f
WHERE
  NOT f.mode IS NULL
