-- One row per object in a repository (`destination`): what the newest run of verify there saw.
-- modified_time: modified_ms, in UTC
-- time: at, in UTC
SELECT check_id, at, destination, path, bytes, modified_ms, timestamp_millis(modified_ms) AS modified_time,
  timestamp_micros(at) AS time
FROM (SELECT o.*, max(o.at) OVER (PARTITION BY o.destination) AS newest FROM raw_storage_objects AS o) AS dated
WHERE at = newest
