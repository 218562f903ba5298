-- Every committed backup.
-- intact: true: all backups of its chain up to it are complete, so it can be restored
-- start_time: start_ts, in UTC; null: none, or another unit than ms
-- end_time: end_ts, in UTC; null: another unit than ms
-- started_time: started_at, in UTC
-- finished_time: finished_at, in UTC
SELECT
  b.*,
  count(CASE WHEN b.state = 'complete' THEN 1 END) OVER chain = b.chain_position + 1 AS intact,
  CASE WHEN b.ts_domain = 'ms' THEN timestamp_millis(b.start_ts) END AS start_time,
  CASE WHEN b.ts_domain = 'ms' THEN timestamp_millis(b.end_ts) END AS end_time,
  timestamp_micros(b.started_at) AS started_time,
  timestamp_micros(b.finished_at) AS finished_time
FROM raw_backups AS b
WINDOW chain AS (
  PARTITION BY b.source, b.base, b.branch ORDER BY b.chain_position
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)
