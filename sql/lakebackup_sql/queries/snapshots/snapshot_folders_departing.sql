-- What the newest backup of a source of snapshots has of folders, as rows of snapshot_folders: a backup :backup_id with
-- number :number has none of them.
SELECT
  f.source, f.scope, f.region, f.name,
  :backup_id AS backup_id,
  CAST(:number AS BIGINT) AS added_in,
  CAST(NULL AS INT) AS mode,
  CAST(NULL AS BIGINT) AS mtime_ms
FROM snapshot_folders AS f
WHERE f.source = :source
  AND f.gone_in IS NULL
