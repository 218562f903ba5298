-- 8c1ad6a603229108 raw_restores
SELECT
  restore_id,
  "at",
  source,
  scope,
  region,
  state,
  target,
  from_ts,
  to_ts,
  selection,
  position,
  entries,
  bytes,
  detail,
  actor,
  TIMESTAMP_MICROS("at") AS time,
  CASE
    WHEN from_ts >= 281474976710656
    THEN TIMESTAMP_MILLIS(from_ts // 262144)
    WHEN from_ts >= 0
    THEN TIMESTAMP_MILLIS(from_ts)
  END AS from_time,
  CASE
    WHEN to_ts >= 281474976710656
    THEN TIMESTAMP_MILLIS(to_ts // 262144)
    WHEN to_ts >= 0
    THEN TIMESTAMP_MILLIS(to_ts)
  END AS to_time
FROM (
  SELECT
    r.*,
    ROW_NUMBER() OVER (PARTITION BY restore_id, scope, region ORDER BY "at" DESC) AS newest
  FROM raw_restores AS r
) AS numbered
WHERE
  newest = 1
