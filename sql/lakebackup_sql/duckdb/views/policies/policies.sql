-- da9afc59731be3a1 clock raw_policies raw_policy_topics
SELECT
  p.source,
  p."at",
  p.actor,
  p.full_schedule,
  p.full_every_ms,
  p.incremental_schedule,
  p.incremental_every_ms,
  p.incremental_kind,
  p.level,
  p.window_days,
  p.redundancy,
  p.min_redundancy,
  p.note,
  t.patterns,
  p.keep_last,
  p.keep_hourly,
  p.keep_daily,
  p.keep_weekly,
  p.keep_monthly,
  p.keep_yearly,
  p.keep_differentials,
  p.time_zone,
  p.command,
  p.drill_schedule,
  p.drill_every_ms,
  CONCAT_WS(
    ', ',
    CASE WHEN NOT p.keep_last IS NULL THEN 'last ' || TRY_CAST(p.keep_last AS TEXT) END,
    CASE
      WHEN NOT p.keep_hourly IS NULL
      THEN 'hourly ' || TRY_CAST(p.keep_hourly AS TEXT)
    END,
    CASE
      WHEN NOT p.keep_daily IS NULL
      THEN 'daily ' || TRY_CAST(p.keep_daily AS TEXT)
    END,
    CASE
      WHEN NOT p.keep_weekly IS NULL
      THEN 'weekly ' || TRY_CAST(p.keep_weekly AS TEXT)
    END,
    CASE
      WHEN NOT p.keep_monthly IS NULL
      THEN 'monthly ' || TRY_CAST(p.keep_monthly AS TEXT)
    END,
    CASE
      WHEN NOT p.keep_yearly IS NULL
      THEN 'yearly ' || TRY_CAST(p.keep_yearly AS TEXT)
    END,
    CASE
      WHEN NOT p.keep_differentials IS NULL
      THEN 'differentials ' || TRY_CAST(p.keep_differentials AS TEXT)
    END
  ) AS keep,
  TIMESTAMP_MICROS(p."at") AS time,
  p.window_from_ts,
  TIMESTAMP_MILLIS(p.window_from_ts) AS window_from_time
FROM (
  SELECT
    r.*,
    CASE
      WHEN NOT r.window_days IS NULL
      THEN (
        SELECT
          now_ms
        FROM clock
      ) - TRY_CAST(LEAST(r.window_days, 36500) AS BIGINT) * 86400000
    END AS window_from_ts,
    ROW_NUMBER() OVER (PARTITION BY r.source ORDER BY r."at" DESC) AS nth
  FROM raw_policies AS r
) AS p
LEFT JOIN (
  SELECT
    r.*,
    ROW_NUMBER() OVER (PARTITION BY r.source ORDER BY r."at" DESC) AS nth
  FROM raw_policy_topics AS r
) AS t
  ON p.source = t.source AND t.nth = 1
WHERE
  p.nth = 1 AND NOT p.removed
