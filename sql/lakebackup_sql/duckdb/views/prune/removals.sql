-- fdcf74ba2941f1fc raw_removals
SELECT
  r.*,
  TIMESTAMP_MICROS(r."at") AS time
FROM raw_removals AS r
