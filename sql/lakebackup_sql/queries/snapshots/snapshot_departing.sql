-- What the newest backup of a source of snapshots has, as rows of departures: a backup :backup_id with number :number
-- has all of it again.
SELECT
  f.source, f.scope, f.region, f.name, f.added_in,
  CAST(:number AS BIGINT) AS gone_in,
  :backup_id AS gone_by
FROM snapshot_files AS f
WHERE f.source = :source
  AND f.gone_in IS NULL
