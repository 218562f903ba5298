-- a04a96cc7351266b raw_removals
SELECT
  r.*,
  TIMESTAMP_MICROS(r."at") AS time
FROM raw_removals AS r
