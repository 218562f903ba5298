-- One row per topic: up to when all of its partitions can be restored, and how long ago that is. For a table of
-- snapshots, this is the instant of the newest intact snapshot. For a change feed (scope '-'), it is the newest
-- checkpoint.
-- present: true: the source's newest restorable backup holds the topic; false: the source no longer has the topic, or
--   it is no longer backed up
-- restorable_ts: the newest instant to which all partitions can be restored; null: there is none
-- restorable_time: restorable_ts, in UTC
-- lag_ms: time from that instant to now, in ms; null: there is no such instant
-- covered_ts: end of the topic's newest restore point, damaged or not; null: it covers no known time
-- covered_time: covered_ts, in UTC
WITH steps AS (
  SELECT
    c.source, c.scope, c.epoch,
    CASE WHEN e.step = 1 THEN COALESCE(c.from_ts, -1) ELSE c.to_ts END AS ts,
    SUM(e.step) AS step
  FROM coverage AS c
  CROSS JOIN (SELECT 1 AS step UNION ALL SELECT -1 AS step) AS e
  WHERE c.status = 'restorable'
  GROUP BY c.source, c.scope, c.epoch, CASE WHEN e.step = 1 THEN COALESCE(c.from_ts, -1) ELSE c.to_ts END
),
levels AS (
  SELECT
    s.source, s.scope, s.epoch,
    SUM(s.step) OVER (
      PARTITION BY s.source, s.scope, s.epoch ORDER BY s.ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS regions,
    LEAD(s.ts) OVER (PARTITION BY s.source, s.scope, s.epoch ORDER BY s.ts) AS to_ts
  FROM steps AS s
)
SELECT
  t.source, t.scope, t.epoch, t.backup_id, t.present,
  l.to_ts AS restorable_ts,
  timestamp_millis(l.to_ts DIV CASE t.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS restorable_time,
  CASE t.ts_domain
    WHEN 'ms' THEN (SELECT now_ms FROM clock) - l.to_ts
    WHEN 'tso' THEN (SELECT now_ms FROM clock) - l.to_ts DIV 262144
  END AS lag_ms,
  CASE WHEN t.covers_to >= 0 THEN t.covers_to END AS covered_ts,
  CASE WHEN t.covers_to >= 0 THEN t.covers_to_time END AS covered_time
FROM (
  -- A compaction holds only some of the topics, so it does not decide which topics are present.
  SELECT
    p.*,
    (p.scope = '-' AND p.epoch = '-') OR p.place >= MAX(CASE WHEN k.place IS NULL THEN p.place END) OVER (PARTITION BY p.source) AS present
  FROM chain_points AS p
  LEFT JOIN compactions AS k ON p.source = k.source AND p.place = k.place
) AS t
LEFT JOIN (
  SELECT v.source, v.scope, v.epoch, MAX(v.to_ts) AS to_ts
  FROM levels AS v
  JOIN chain_points AS p
    ON v.source = p.source AND v.scope = p.scope AND v.epoch = p.epoch AND p.newest AND v.regions >= p.regions
  GROUP BY v.source, v.scope, v.epoch
  UNION ALL
  SELECT p.source, p.scope, p.epoch, MAX(p.covers_to) AS to_ts
  FROM chain_points AS p
  JOIN raw_backups AS b ON p.backup_id = b.backup_id
  LEFT ANTI JOIN (
    SELECT backup_id FROM unusable_backups WHERE reason IN ('missing', 'changed', 'damaged')
  ) AS u ON p.backup_id = u.backup_id
  WHERE b.source_kind = 'snapshot'
    AND p.covers_to >= 0
  GROUP BY p.source, p.scope, p.epoch
) AS l ON t.source = l.source AND t.scope = l.scope AND t.epoch = l.epoch
WHERE t.newest
