-- 336910f8a8f8bff1 faulty_files
SELECT
  f.source,
  f.destination,
  f.path,
  f.backup_id,
  f.scope,
  f.epoch,
  f.region,
  f.bytes,
  f.entries,
  f.min_ts,
  f.max_ts,
  f.min_time,
  f.max_time,
  f.check_id,
  f.found_at,
  TIMESTAMP_MICROS(f.found_at) AS found_time
FROM faulty_files AS f
WHERE
  f.outcome = 'missing'
