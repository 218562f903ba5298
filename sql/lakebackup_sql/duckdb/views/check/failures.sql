-- 30a2b0f6cf430374 clock raw_failures
SELECT
  f.*,
  TIMESTAMP_MICROS(f.started_at) AS started_time,
  TIMESTAMP_MICROS(f."at") AS time,
  (
    SELECT
      now_ms
    FROM clock
  ) - f."at" // 1000 AS age_ms
FROM raw_failures AS f
WHERE
  f.exit_code <> 0
