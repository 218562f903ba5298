-- Folders of snapshots with the whole of their lifetime: the backups of the source with a number from added_in to before
-- gone_in have the folder with this mode and time. Backups by older versions have none.
-- mode: permission bits of the folder
-- mtime_ms: when the folder was last changed, ms since 1970 UTC
-- gone_in: number of the first backup that does not have the folder so any more; null: the newest has it
-- gone_by: that backup
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
