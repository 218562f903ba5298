-- 08a0227386d512d6 restore_points
SELECT
  source,
  scope,
  epoch,
  destination,
  backup_id,
  base,
  number,
  place,
  link,
  kind,
  regions,
  replication,
  settings,
  generation,
  covers_from,
  covers_to,
  TRUE AS newest,
  ts_domain,
  covers_from_time,
  covers_to_time
FROM restore_points
WHERE
  backup_id = $backup_id
ORDER BY
  scope NULLS FIRST
