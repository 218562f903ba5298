-- 1c6bad8672abc61e raw_policies raw_policy_topics
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
  TIMESTAMP_MICROS(p."at") AS time,
  EPOCH_MS(CURRENT_TIMESTAMP) - TRY_CAST(p.window_days AS BIGINT) * 86400000 AS window_from_ts,
  TIMESTAMP_MILLIS(EPOCH_MS(CURRENT_TIMESTAMP) - TRY_CAST(p.window_days AS BIGINT) * 86400000) AS window_from_time
FROM (
  SELECT
    r.*,
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
