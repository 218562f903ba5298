-- 13bc10016a9d4e5c backups floors future_backups own_kinds raw_scopes scope_floors
SELECT
  p.source,
  p.scope,
  p.epoch,
  p.destination,
  p.backup_id,
  p.base,
  p.number,
  p.place,
  p.link,
  p.kind,
  p.regions,
  p.replication,
  p.settings,
  p.generation,
  p.covers_from,
  p.covers_to,
  p.newest,
  p.ts_domain,
  TIMESTAMP_MILLIS(
    CASE
      WHEN p.covers_from >= 0
      THEN p.covers_from // CASE p.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END
    END
  ) AS covers_from_time,
  TIMESTAMP_MILLIS(p.covers_to // CASE p.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS covers_to_time
FROM (
  SELECT
    b.source,
    b.scope,
    b.epoch,
    b.destination,
    b.backup_id,
    b.base,
    b.number,
    b.place,
    b.link,
    b.kind,
    b.regions,
    b.replication,
    b.settings,
    b.generation,
    b.ts_domain,
    CASE
      WHEN NOT b.source_kind IN ('snapshot', 'queues')
      AND LEAD(b.end_ts) OVER points = b.end_ts
      AND b.end_ts >= 0
      THEN b.end_ts - 1
      ELSE b.end_ts
    END AS covers_to,
    CASE
      WHEN b.source_kind IN ('snapshot', 'queues') AND b.untimed
      THEN b.end_ts
      WHEN b.source_kind = 'snapshot' OR (
        b.source_kind = 'queues' AND b.kind = 'full'
      )
      THEN b.end_ts - 1
      WHEN b.source_kind = 'queues'
      THEN b.start_ts
      WHEN LAG(b.end_ts) OVER points = b.end_ts AND b.end_ts >= 0
      THEN b.end_ts - 1
      ELSE COALESCE(LAG(b.end_ts) OVER points, -1)
    END AS covers_from,
    LEAD(b.number) OVER points IS NULL AS newest
  FROM (
    SELECT
      o.source,
      o.scope,
      o.epoch,
      o.destination,
      o.backup_id,
      o.base,
      o.number,
      o.place,
      o.link,
      o.kind,
      o.regions,
      o.replication,
      o.settings,
      o.generation,
      o.ts_domain,
      o.source_kind,
      o.start_ts,
      COALESCE(o.promised_ts < o.before_ts, o.promised_ts < 0) AS untimed,
      CASE
        WHEN o.promised_ts < o.end_ts OR o.source_kind IN ('kafka', 'snapshot', 'queues')
        THEN GREATEST(o.promised_ts, COALESCE(o.before_ts, -1))
        ELSE o.end_ts
      END AS end_ts
    FROM (
      SELECT
        p.*,
        MAX(p.promised_ts) OVER (
          PARTITION BY p.source, p.scope
          ORDER BY p.place NULLS FIRST, p.number NULLS FIRST
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ts
      FROM (
        SELECT
          t.*,
          s.scope,
          s.epoch,
          s.regions,
          s.replication,
          s.settings,
          s.generation,
          CASE WHEN NOT u.backup_id IS NULL THEN -1 ELSE COALESCE(s.complete_ts, t.end_ts) END AS promised_ts
        FROM raw_scopes AS s
        JOIN backups AS t
          ON s.backup_id = t.backup_id
        LEFT JOIN scope_floors AS l
          ON s.source = l.source AND s.scope = l.scope AND s.epoch = l.epoch
        LEFT JOIN future_backups AS u
          ON t.backup_id = u.backup_id
        WHERE
          t.state = 'complete'
          AND t.chained
          AND t.source_kind <> 'changes'
          AND s.generation >= COALESCE(l.generation, 0)
      ) AS p
    ) AS o
  ) AS b
  WINDOW points AS (PARTITION BY b.source, b.scope ORDER BY b.place NULLS FIRST, b.number NULLS FIRST)
  UNION ALL
  SELECT
    c.source,
    '-' AS scope,
    '-' AS epoch,
    c.destination,
    c.backup_id,
    c.base,
    c.number,
    c.place,
    c.link,
    c.kind,
    1 AS regions,
    0 AS replication,
    '{}' AS settings,
    0 AS generation,
    c.ts_domain,
    c.end_ts AS covers_to,
    CASE WHEN c.kind = 'log' THEN GREATEST(c.start_ts, c.low) ELSE c.end_ts - 1 END AS covers_from,
    ROW_NUMBER() OVER (PARTITION BY c.source ORDER BY c.end_ts DESC, c.kind DESC, c.place DESC) = 1 AS newest
  FROM (
    SELECT
      b.*,
      COALESCE(f.low_position, 0) AS low
    FROM backups AS b
    LEFT JOIN own_kinds AS k
      ON b.source_kind = k.source_kind
    LEFT JOIN floors AS f
      ON b.source = f.source AND f.scope = '-'
    WHERE
      COALESCE(k.source_kind, 'changes') = 'changes'
      AND b.state = 'complete'
      AND b.chained
  ) AS c
  WHERE
    c.kind <> 'log'
    OR (
      c.source_kind = 'changes'
      AND NOT c.start_ts IS NULL
      AND c.end_ts > GREATEST(c.start_ts, c.low)
    )
    OR (
      c.source_kind <> 'changes' AND c.start_ts <= c.end_ts
    )
) AS p
