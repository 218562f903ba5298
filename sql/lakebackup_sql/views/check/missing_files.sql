-- One row per data file whose object was missing from storage when verify last looked for it: which records are
-- affected.
-- backup_id: the backup that wrote the file
-- found_at: when verify noticed that it was missing, microseconds since 1970 UTC
-- found_time: when verify noticed that it was missing, in UTC
SELECT
  f.source, f.destination, f.path, f.backup_id, f.scope, f.epoch, f.region, f.bytes, f.entries, f.min_ts, f.max_ts,
  f.min_time, f.max_time, f.check_id, f.found_at, timestamp_micros(f.found_at) AS found_time
FROM faulty_files AS f
WHERE f.outcome = 'missing'
