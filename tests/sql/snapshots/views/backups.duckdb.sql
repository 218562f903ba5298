SELECT
  b.*,
  COUNT(CASE WHEN b.state = 'complete' THEN 1 END) OVER chain = b.chain_position + 1 AS intact,
  CASE WHEN b.ts_domain = 'ms' THEN TIMESTAMP_MILLIS(b.start_ts) END AS start_time,
  CASE WHEN b.ts_domain = 'ms' THEN TIMESTAMP_MILLIS(b.end_ts) END AS end_time,
  TIMESTAMP_MICROS(b.started_at) AS started_time,
  TIMESTAMP_MICROS(b.finished_at) AS finished_time
FROM raw_backups AS b
WINDOW chain AS (
  PARTITION BY b.source, b.base, b.branch
  ORDER BY b.chain_position NULLS FIRST
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)
