-- 26c7ec78fee788e8 snapshot_files
SELECT
  f.source,
  f.scope,
  f.region,
  f.name,
  f.added_in,
  TRY_CAST($number AS BIGINT) AS gone_in,
  $backup_id AS gone_by
FROM snapshot_files AS f
WHERE
  f.source = $source AND f.gone_in IS NULL
