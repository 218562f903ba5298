-- 9465f197284330ac clock due_runs newest_runs
SELECT
  s.source,
  s.run,
  s.schedule,
  s.every_ms,
  s.backup_id,
  s.last_ts,
  TIMESTAMP_MILLIS(s.last_ts) AS last_time,
  s.due_ts,
  TIMESTAMP_MILLIS(s.due_ts) AS due_time,
  CASE
    WHEN s.now_ms >= s.due_ts
    THEN 1 + TRY_CAST(FLOOR((
      s.now_ms - s.due_ts
    ) / NULLIF(s.every_ms, 0)) AS BIGINT)
    ELSE 0
  END AS missed,
  CASE WHEN s.now_ms >= s.due_ts THEN s.now_ms - s.due_ts END AS late_ms,
  s.now_ms - s.ended_ms AS lag_ms
FROM (
  SELECT
    n.*,
    d.due_ts,
    (
      SELECT
        now_ms
      FROM clock
    ) AS now_ms
  FROM newest_runs AS n
  JOIN due_runs AS d
    ON n.source = d.source AND n.run = d.run
  WHERE
    n.run <> 'drill'
) AS s
