-- 5be8c980c37dfc27 given_departures known_files
SELECT
  f.destination,
  f.path,
  f.backup_id,
  f.added_in,
  d.gone_in,
  f.source,
  f.scope,
  f.epoch,
  f.region,
  f.bytes,
  f.entries,
  f.sha256
FROM given_departures AS d
JOIN known_files AS f
  ON d.backup_id = f.backup_id
  AND d.path = f.path
  AND (
    d.scope IS NULL OR d.scope = f.scope
  )
  AND (
    d.region IS NULL OR d.region = f.region
  )
