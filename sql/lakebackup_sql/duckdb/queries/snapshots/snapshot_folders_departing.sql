-- 367c3ee9c1eef511 snapshot_folders
SELECT
  f.source,
  f.scope,
  f.region,
  f.name,
  $backup_id AS backup_id,
  TRY_CAST($number AS BIGINT) AS added_in,
  TRY_CAST(NULL AS INT) AS mode,
  TRY_CAST(NULL AS BIGINT) AS mtime_ms
FROM snapshot_folders AS f
WHERE
  f.source = $source AND f.gone_in IS NULL
