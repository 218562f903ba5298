-- 94d7c1b7806ed40e raw_storage_objects
SELECT
  check_id,
  "at",
  destination,
  path,
  bytes,
  modified_ms,
  TIMESTAMP_MILLIS(modified_ms) AS modified_time,
  TIMESTAMP_MICROS("at") AS time
FROM (
  SELECT
    o.*,
    MAX(o."at") OVER (PARTITION BY o.destination) AS newest
  FROM raw_storage_objects AS o
) AS dated
WHERE
  "at" = newest
