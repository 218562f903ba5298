-- One row per source with a policy: its schedules and retention rules in force. The newest policy that was set for the
-- source is in force, unless it was removed.
-- patterns: regular expressions of the topics that it covers, a JSON array; null: the topics that backups hold
-- keep: the keep_… rules, in words
-- at: when it was set, microseconds since 1970 UTC
-- time: at, in UTC
-- window_from_ts: start of the recovery window, ms since 1970 UTC: now minus window_days; null: no window
-- window_from_time: window_from_ts, in UTC
SELECT
  p.source, p.at, p.actor, p.full_schedule, p.full_every_ms, p.incremental_schedule, p.incremental_every_ms,
  p.incremental_kind, p.level, p.window_days, p.redundancy, p.min_redundancy, p.note, t.patterns,
  p.keep_last, p.keep_hourly, p.keep_daily, p.keep_weekly, p.keep_monthly, p.keep_yearly, p.keep_differentials,
  p.time_zone, p.command, p.drill_schedule, p.drill_every_ms,
  CONCAT_WS(
    ', ',
    CASE WHEN p.keep_last IS NOT NULL THEN CONCAT('last ', CAST(p.keep_last AS STRING)) END,
    CASE WHEN p.keep_hourly IS NOT NULL THEN CONCAT('hourly ', CAST(p.keep_hourly AS STRING)) END,
    CASE WHEN p.keep_daily IS NOT NULL THEN CONCAT('daily ', CAST(p.keep_daily AS STRING)) END,
    CASE WHEN p.keep_weekly IS NOT NULL THEN CONCAT('weekly ', CAST(p.keep_weekly AS STRING)) END,
    CASE WHEN p.keep_monthly IS NOT NULL THEN CONCAT('monthly ', CAST(p.keep_monthly AS STRING)) END,
    CASE WHEN p.keep_yearly IS NOT NULL THEN CONCAT('yearly ', CAST(p.keep_yearly AS STRING)) END,
    CASE WHEN p.keep_differentials IS NOT NULL THEN CONCAT('differentials ', CAST(p.keep_differentials AS STRING)) END
  ) AS keep,
  timestamp_micros(p.at) AS time,
  p.window_from_ts,
  timestamp_millis(p.window_from_ts) AS window_from_time
FROM (
  SELECT
    r.*,
    -- At most 100 years back: an earlier instant might have no date.
    CASE WHEN r.window_days IS NOT NULL
      THEN (SELECT now_ms FROM clock) - CAST(LEAST(r.window_days, 36500) AS BIGINT) * 86400000
    END AS window_from_ts,
    ROW_NUMBER() OVER (PARTITION BY r.source ORDER BY r.at DESC) AS nth
  FROM raw_policies AS r
) AS p
LEFT JOIN (
  SELECT r.*, ROW_NUMBER() OVER (PARTITION BY r.source ORDER BY r.at DESC) AS nth FROM raw_policy_topics AS r
) AS t ON p.source = t.source AND t.nth = 1
WHERE p.nth = 1 AND NOT p.removed
