-- What the newest run of verify saw in each destination.
SELECT check_id, at, destination, path, bytes, modified_ms, timestamp_millis(modified_ms) AS modified_time
FROM (
  SELECT o.*, max(o.at) OVER (PARTITION BY o.destination) AS newest FROM raw_storage_objects AS o
) AS dated
WHERE at = newest
