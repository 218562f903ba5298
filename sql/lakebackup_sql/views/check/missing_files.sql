-- Data files whose object was not in the storage when verify last looked for it.
-- backup_id: the backup that wrote it
-- found_at: when verify missed it, microseconds since 1970 UTC
-- found_time: when verify missed it, in UTC
SELECT
  f.source, f.destination, f.path, f.backup_id, f.scope, f.epoch, f.region, f.bytes, f.entries, f.min_ts, f.max_ts,
  f.min_time, f.max_time, f.check_id, f.found_at, timestamp_micros(f.found_at) AS found_time
FROM faulty_files AS f
WHERE f.outcome = 'missing'
