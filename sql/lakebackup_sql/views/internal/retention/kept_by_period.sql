-- One row per backup that a keep_… rule keeps: the newest usable backup of each of the last so many hours, days, weeks,
-- months or years that have one, in the policy's time zone.
-- rule: the first rule that keeps it: last, hourly, daily, weekly, monthly or yearly
WITH timed AS (
  SELECT
    k.*,
    -- The local time, as ms since 1970 by a clock in the time zone.
    unix_millis(
      CAST(
        convert_timezone('UTC', k.time_zone, CAST(timestamp_millis(k.ended_ms) AS TIMESTAMP_NTZ)) AS TIMESTAMP
      )
    ) AS local_ms,
    ROW_NUMBER() OVER (PARTITION BY k.source ORDER BY k.place DESC, k.number DESC) AS nth
  FROM retained_backups AS k
  WHERE k.usable AND k.has_rules
),
-- The period that a backup is in, for each rule. When clocks go back, the repeated hour counts as two separate hours.
periods AS (
  SELECT t.backup_id, t.source, t.nth, 1 AS ordinal, 'last' AS rule, t.keep_last AS keep, -t.nth AS period FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id, t.source, t.nth, 2, 'hourly', t.keep_hourly,
    CAST(FLOOR(t.local_ms / 3600000) AS BIGINT) * 3600000 - (t.local_ms - t.ended_ms)
  FROM timed AS t
  UNION ALL
  SELECT t.backup_id, t.source, t.nth, 3, 'daily', t.keep_daily, CAST(FLOOR(t.local_ms / 86400000) AS BIGINT)
  FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id, t.source, t.nth, 4, 'weekly', t.keep_weekly,
    CAST(FLOOR((CAST(FLOOR(t.local_ms / 86400000) AS BIGINT) + 3) / 7) AS BIGINT) -- 1970-01-01 was a Thursday
  FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id, t.source, t.nth, 5, 'monthly', t.keep_monthly,
    YEAR(timestamp_millis(t.local_ms)) * 12 + MONTH(timestamp_millis(t.local_ms))
  FROM timed AS t
  UNION ALL
  SELECT t.backup_id, t.source, t.nth, 6, 'yearly', t.keep_yearly, YEAR(timestamp_millis(t.local_ms)) FROM timed AS t
)
SELECT n.backup_id, MIN_BY(n.rule, n.ordinal) AS rule
FROM (
  SELECT
    p.*,
    ROW_NUMBER() OVER (PARTITION BY p.source, p.rule, p.period ORDER BY p.nth) AS nth_in_period,
    DENSE_RANK() OVER (PARTITION BY p.source, p.rule ORDER BY p.period DESC) AS nth_period
  FROM periods AS p
  WHERE p.keep IS NOT NULL
) AS n
WHERE n.nth_in_period = 1
  AND n.nth_period <= n.keep
GROUP BY n.backup_id
