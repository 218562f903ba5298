-- One row per backup from which a restore can start and continue with logs: which times (covers_from, covers_to] it
-- reaches. The sources are those whose logs depend on no single full: change feeds and sources of other programs. The
-- instant of the backup itself needs no log. The times after it, up to the next backup that is no log, need the
-- unbroken run of logs from there on.
-- base_id: the backup to start from; null: none is needed, because a change feed's log reaches back to 0
-- base_ts: the instant of that backup
WITH timeline AS (
  SELECT t.source, t.backup_id, b.source_kind, t.kind, t.ts_domain, t.number, t.covers_from, t.covers_to
  FROM chain_points AS t
  JOIN raw_backups AS b ON t.backup_id = b.backup_id
  WHERE t.scope = '-' AND t.epoch = '-'
),
logs AS (
  SELECT
    l.*,
    MAX(l.covers_to) OVER (
      PARTITION BY l.source ORDER BY l.covers_from, l.covers_to, l.number
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached
  FROM timeline AS l
  WHERE l.kind = 'log'
),
runs AS (
  SELECT r.source, MIN(r.source_kind) AS source_kind, MIN(r.ts_domain) AS ts_domain,
    MIN(r.covers_from) AS from_ts, MAX(r.covers_to) AS to_ts
  FROM (
    SELECT
      l.*,
      SUM(CASE WHEN l.covers_from <= l.reached THEN 0 ELSE 1 END) OVER (
        PARTITION BY l.source ORDER BY l.covers_from, l.covers_to, l.number
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS run
    FROM logs AS l
  ) AS r
  GROUP BY r.source, r.run
),
points AS (
  SELECT
    p.*, LEAD(p.base_ts) OVER (PARTITION BY p.source ORDER BY p.base_ts, p.number) AS next_ts
  FROM (
    SELECT source, source_kind, ts_domain, number, backup_id AS base_id, covers_to AS base_ts
    FROM timeline
    WHERE kind <> 'log'
    UNION ALL
    SELECT source, source_kind, ts_domain, 0 AS number, CAST(NULL AS STRING) AS base_id, from_ts AS base_ts
    FROM runs
    WHERE source_kind = 'changes' AND from_ts = 0
  ) AS p
)
SELECT
  p.source, p.source_kind, p.ts_domain, p.base_id, p.base_ts,
  CASE WHEN p.base_id IS NULL THEN p.base_ts ELSE p.base_ts - 1 END AS covers_from,
  GREATEST(p.base_ts, LEAST(COALESCE(r.to_ts, p.base_ts), COALESCE(p.next_ts - 1, r.to_ts, p.base_ts))) AS covers_to
FROM points AS p
LEFT JOIN runs AS r ON p.source = r.source AND r.from_ts <= p.base_ts AND p.base_ts < r.to_ts
WHERE p.next_ts IS NULL OR p.next_ts > p.base_ts
