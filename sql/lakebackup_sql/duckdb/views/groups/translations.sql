-- f4c07097f685e6c9 raw_translations
SELECT
  t.*,
  TIMESTAMP_MICROS(t."at") AS time,
  CASE WHEN t.to_ts >= 0 THEN TIMESTAMP_MILLIS(t.to_ts) END AS to_time
FROM raw_translations AS t
