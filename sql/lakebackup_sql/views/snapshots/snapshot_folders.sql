-- One row per version of a folder in snapshots: which backups have the folder with this mode and time. These are the
-- backups of the source with a number from `added_in` to `gone_in` - 1. Backups by older versions of lakebackup have no
-- rows here.
-- mode: permission bits of the folder
-- mtime_ms: when the folder was last changed, ms since 1970 UTC
-- gone_in: number of the first backup that does not have this version of the folder; null: the newest backup has it
-- gone_by: id of that backup
SELECT f.source, f.scope, f.region, f.name, f.mode, f.mtime_ms, f.backup_id, f.added_in, f.gone_in, f.gone_by
FROM (
  SELECT
    d.source, d.scope, d.region, d.name, d.mode, d.mtime_ms, d.backup_id, d.added_in,
    LEAD(d.added_in) OVER versions AS gone_in,
    LEAD(d.backup_id) OVER versions AS gone_by
  FROM raw_snapshot_folders AS d
  JOIN raw_backups AS b ON d.backup_id = b.backup_id
  WINDOW versions AS (PARTITION BY d.source, d.scope, d.region, d.name ORDER BY d.added_in)
) AS f
WHERE f.mode IS NOT NULL
