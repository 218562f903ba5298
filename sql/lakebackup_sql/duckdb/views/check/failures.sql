-- d6ecc0853e9e0013 raw_failures
SELECT
  f.*,
  TIMESTAMP_MICROS(f.started_at) AS started_time,
  TIMESTAMP_MICROS(f."at") AS time,
  EPOCH_MS(CURRENT_TIMESTAMP) - f."at" // 1000 AS age_ms
FROM raw_failures AS f
