-- bf1cfb6321deff2d backups chain_points departures emptied_backups faulty_files files floors own_kinds queue_faults raw_backups raw_files raw_gaps raw_positions raw_queue_points raw_removals raw_scopes restore_spans scope_floors
WITH whole AS (
  SELECT
    t.source,
    t.scope,
    t.epoch,
    t.backup_id,
    t.base,
    t.number,
    t.place,
    t.link,
    t.generation,
    t.covers_from,
    t.covers_to,
    b.source_kind
  FROM chain_points AS t
  JOIN raw_backups AS b
    ON t.backup_id = b.backup_id
  WHERE
    b.source_kind <> 'changes'
), points AS (
  SELECT
    *
  FROM whole
  WHERE
    source_kind <> 'queues'
), told AS (
  SELECT
    t.scope,
    t.epoch,
    t.backup_id,
    t.number,
    'held' AS reason,
    '' AS apart,
    t.covers_from AS from_ts,
    t.covers_to AS to_ts
  FROM points AS t
  UNION ALL
  SELECT
    s.scope,
    s.epoch,
    b.backup_id,
    b.number,
    CASE WHEN b.state = 'complete' THEN 'chain' ELSE 'out_of_sync' END AS reason,
    b.backup_id AS apart,
    COALESCE(b.start_ts, TRY_CAST(FLOOR(b.started_at / NULLIF(1000, 0)) AS BIGINT)) AS from_ts,
    b.end_ts AS to_ts
  FROM raw_scopes AS s
  JOIN backups AS b
    ON s.backup_id = b.backup_id
  WHERE
    b.source_kind <> 'changes'
    AND (
      b.state = 'out_of_sync' OR (
        b.state = 'complete' AND NOT b.chained
      )
    )
), held AS (
  SELECT
    p.source,
    p.scope,
    p.epoch,
    p.region,
    t.reason,
    MIN(t.from_ts) AS from_ts,
    MAX(t.to_ts) AS to_ts,
    ARG_MIN(p.start_position, t.number) AS from_position,
    ARG_MAX(p.end_position, t.number) AS to_position
  FROM raw_positions AS p
  JOIN told AS t
    ON p.backup_id = t.backup_id AND p.scope = t.scope AND p.epoch = t.epoch
  GROUP BY
    p.source,
    p.scope,
    p.epoch,
    p.region,
    t.reason,
    t.apart
), causes AS (
  SELECT
    f.source,
    f.scope,
    f.epoch,
    f.region,
    f.generation,
    b.base,
    b.link,
    b.unlinked,
    f.outcome AS reason,
    MIN(f.min_ts) - 1 AS from_ts,
    TRY_CAST(NULL AS BIGINT) AS from_position
  FROM faulty_files AS f
  JOIN backups AS b
    ON f.backup_id = b.backup_id
  WHERE
    f.role = 'data'
  GROUP BY
    f.source,
    f.scope,
    f.epoch,
    f.region,
    f.generation,
    b.base,
    b.link,
    b.unlinked,
    f.outcome
  UNION ALL
  SELECT
    g.source,
    g.scope,
    g.epoch,
    g.region,
    s.generation,
    b.base,
    b.link,
    b.unlinked,
    'bridged' AS reason,
    g.to_ts - 1 AS from_ts,
    g.to_position AS from_position
  FROM raw_scopes AS s
  JOIN raw_gaps AS g
    ON g.backup_id = s.backup_id AND g.scope = s.scope AND g.epoch = s.epoch
  JOIN backups AS b
    ON g.backup_id = b.backup_id
  WHERE
    g.bridged AND b.state = 'complete' AND b.source_kind <> 'changes'
), compacted AS (
  SELECT
    t.*
  FROM points AS t
  SEMI JOIN (
    SELECT
      backup_id,
      scope,
      epoch
    FROM raw_scopes
    WHERE
      REGEXP_MATCHES(settings, '"cleanup.policy": "[^"]*compact')
  ) AS s
    ON t.backup_id = s.backup_id AND t.scope = s.scope AND t.epoch = s.epoch
), replaced AS (
  SELECT
    t.source,
    t.scope,
    t.epoch,
    p.region,
    t.covers_from,
    t.covers_to
  FROM raw_positions AS p
  JOIN compacted AS t
    ON t.backup_id = p.backup_id AND t.scope = p.scope AND t.epoch = p.epoch
  LEFT JOIN (
    SELECT
      r.backup_id,
      r.scope,
      r.epoch,
      r.region,
      SUM(r.entries) AS entries
    FROM raw_files AS r
    SEMI JOIN compacted AS c
      ON r.backup_id = c.backup_id AND r.scope = c.scope AND r.epoch = c.epoch
    WHERE
      r.role = 'data'
    GROUP BY
      r.backup_id,
      r.scope,
      r.epoch,
      r.region
  ) AS f
    ON p.backup_id = f.backup_id
    AND p.scope = f.scope
    AND p.epoch = f.epoch
    AND p.region = f.region
  WHERE
    p.end_position - p.start_position > COALESCE(f.entries, 0)
), pruned AS (
  SELECT
    a.source,
    a.scope,
    a.epoch,
    a.region,
    t.covers_from,
    c.covers_to AS chain_to,
    MIN(a.kept_min_ts) OVER upto AS kept_min_ts,
    MAX(a.gone_max_ts) OVER upto AS gone_max_ts,
    LEAD(t.covers_from) OVER (
      PARTITION BY a.source, a.scope, a.epoch, a.region, t.base, t.generation
      ORDER BY t.link NULLS FIRST
    ) AS next_from
  FROM (
    SELECT
      f.source,
      f.scope,
      f.epoch,
      f.region,
      f.generation,
      f.backup_id,
      MIN(CASE WHEN r.path IS NULL AND e.backup_id IS NULL THEN f.min_ts END) AS kept_min_ts,
      MAX(CASE WHEN NOT r.path IS NULL OR NOT e.backup_id IS NULL THEN f.max_ts END) AS gone_max_ts
    FROM raw_files AS f
    JOIN floors AS l
      ON f.source = l.source
      AND f.scope = l.scope
      AND f.epoch = l.epoch
      AND f.region = l.region
    LEFT JOIN raw_removals AS r
      ON f.destination = r.destination AND f.path = r.path
    LEFT JOIN emptied_backups AS e
      ON f.backup_id = e.backup_id
    WHERE
      f.role = 'data'
    GROUP BY
      f.source,
      f.scope,
      f.epoch,
      f.region,
      f.generation,
      f.backup_id
  ) AS a
  JOIN points AS t
    ON a.backup_id = t.backup_id
    AND a.scope = t.scope
    AND a.epoch = t.epoch
    AND a.generation = t.generation
  JOIN (
    SELECT
      p.source,
      p.scope,
      p.epoch,
      p.base,
      p.generation,
      MAX(p.covers_to) AS covers_to
    FROM points AS p
    SEMI JOIN scope_floors AS n
      ON p.source = n.source AND p.scope = n.scope AND p.epoch = n.epoch
    GROUP BY
      p.source,
      p.scope,
      p.epoch,
      p.base,
      p.generation
  ) AS c
    ON t.source = c.source
    AND t.scope = c.scope
    AND t.epoch = c.epoch
    AND t.base = c.base
    AND t.generation = c.generation
  WINDOW upto AS (
    PARTITION BY a.source, a.scope, a.epoch, a.region, t.base, t.generation
    ORDER BY t.link NULLS FIRST
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
), missed AS (
  SELECT
    f.*
  FROM faulty_files AS f
  ANTI JOIN (
    SELECT
      d.destination,
      d.path
    FROM departures AS d
    JOIN faulty_files AS g
      ON d.destination = g.destination AND d.path = g.path
  ) AS e
    ON f.destination = e.destination AND f.path = e.path
  WHERE
    f.format = 'log-arrow-1' AND f.role = 'data' AND f.op = 'put'
), logged AS (
  SELECT
    b.source,
    'held' AS reason,
    CASE
      WHEN b.kind = 'full'
      THEN b.end_ts - 1
      ELSE GREATEST(b.start_ts, COALESCE(l.low_position, 0))
    END AS from_ts,
    b.end_ts AS to_ts
  FROM backups AS b
  LEFT JOIN floors AS l
    ON b.source = l.source AND l.scope = '-'
  ANTI JOIN (
    SELECT
      backup_id
    FROM faulty_files
    WHERE
      format = 'delta'
  ) AS d
    ON b.backup_id = d.backup_id
  WHERE
    b.source_kind = 'changes' AND b.state = 'complete' AND b.chained
  UNION ALL
  SELECT
    b.source,
    'chain' AS reason,
    b.start_ts AS from_ts,
    b.end_ts AS to_ts
  FROM backups AS b
  WHERE
    b.source_kind = 'changes'
    AND b.kind = 'log'
    AND b.state = 'complete'
    AND NOT b.chained
  UNION ALL
  SELECT
    g.source,
    g.reason,
    g.from_ts,
    g.to_ts
  FROM raw_gaps AS g
  JOIN raw_backups AS b
    ON g.backup_id = b.backup_id
  WHERE
    b.source_kind = 'changes' AND b.state = 'complete'
  UNION ALL
  SELECT
    m.source,
    m.outcome AS reason,
    m.min_ts - 1 AS from_ts,
    MAX(m.to_ts) AS to_ts
  FROM (
    SELECT
      f.source,
      f.outcome,
      f.destination,
      f.path,
      f.min_ts,
      f.max_ts AS to_ts
    FROM missed AS f
    UNION ALL
    SELECT
      f.source,
      f.outcome,
      f.destination,
      f.path,
      f.min_ts,
      w.max_ts AS to_ts
    FROM files AS w
    JOIN missed AS f
      ON f.source = w.source AND w.min_begin_ts <= f.max_ts AND w.max_ts >= f.min_ts
    WHERE
      f.cf = 'default' AND w.cf = 'write'
  ) AS m
  GROUP BY
    m.source,
    m.outcome,
    m.destination,
    m.path,
    m.min_ts
), imported AS (
  SELECT
    s.source,
    'held' AS reason,
    s.covers_from AS from_ts,
    s.covers_to AS to_ts
  FROM restore_spans AS s
  WHERE
    s.source_kind <> 'changes'
  UNION ALL
  SELECT
    b.source,
    CASE WHEN b.state = 'complete' THEN 'chain' ELSE 'left' END AS reason,
    CASE WHEN b.kind = 'log' THEN b.start_ts ELSE b.end_ts - 1 END AS from_ts,
    b.end_ts AS to_ts
  FROM backups AS b
  ANTI JOIN own_kinds AS k
    ON b.source_kind = k.source_kind
  WHERE
    b.state = 'out_of_sync'
    OR (
      b.state = 'complete' AND (
        b.kind = 'log' OR NOT b.chained
      )
    )
), spoiled AS (
  SELECT
    b.backup_id,
    x.reason,
    MIN(x.from_ts) AS from_ts
  FROM (
    SELECT
      source,
      base,
      link,
      unlinked,
      outcome AS reason,
      from_ts
    FROM queue_faults
    WHERE
      COALESCE(snapshot_state, 'complete') <> 'deleted'
    UNION ALL
    SELECT
      n.source,
      n.base,
      n.link,
      n.unlinked,
      'chain' AS reason,
      -1 AS from_ts
    FROM raw_queue_points AS p
    JOIN backups AS n
      ON p.backup_id = n.backup_id
    LEFT JOIN raw_backups AS s
      ON p.snapshot_id = s.backup_id
    WHERE
      NOT p.snapshot_id IS NULL AND COALESCE(s.state, 'deleted') <> 'complete'
  ) AS x
  JOIN backups AS b
    ON x.source = b.source
    AND x.base = b.base
    AND x.link <= b.link
    AND b.link < x.unlinked
  GROUP BY
    b.backup_id,
    x.reason
), states AS (
  SELECT
    t.source,
    t.scope,
    t.epoch,
    p.region,
    t.backup_id,
    t.covers_from,
    t.covers_to,
    p.start_position,
    p.end_position
  FROM raw_positions AS p
  JOIN (
    SELECT
      w.*
    FROM whole AS w
    JOIN raw_queue_points AS q
      ON w.backup_id = q.backup_id
    WHERE
      w.source_kind = 'queues'
  ) AS t
    ON t.backup_id = p.backup_id AND t.scope = p.scope AND t.epoch = p.epoch
), queued AS (
  SELECT
    w.source,
    w.scope,
    w.epoch,
    w.region,
    'whole' AS reason,
    w.covers_from AS from_ts,
    LEAST(w.covers_to, COALESCE(l.from_ts, w.covers_to)) AS to_ts,
    w.start_position AS from_position,
    CASE WHEN l.from_ts IS NULL THEN w.end_position END AS to_position
  FROM states AS w
  LEFT JOIN (
    SELECT
      backup_id,
      MIN(from_ts) AS from_ts
    FROM spoiled
    GROUP BY
      backup_id
  ) AS l
    ON w.backup_id = l.backup_id
  UNION ALL
  SELECT
    w.source,
    w.scope,
    w.epoch,
    w.region,
    s.reason,
    GREATEST(w.covers_from, s.from_ts) AS from_ts,
    w.covers_to AS to_ts,
    TRY_CAST(NULL AS BIGINT) AS from_position,
    w.end_position AS to_position
  FROM states AS w
  JOIN spoiled AS s
    ON w.backup_id = s.backup_id
), marks AS (
  SELECT
    w.source,
    w.scope,
    w.epoch,
    w.region,
    w.reason,
    w.from_ts,
    w.to_ts,
    w.from_position,
    w.to_position
  FROM queued AS w
  UNION ALL
  SELECT
    l.source,
    '-' AS scope,
    '-' AS epoch,
    '-' AS region,
    l.reason,
    l.from_ts,
    l.to_ts,
    TRY_CAST(NULL AS BIGINT) AS from_position,
    TRY_CAST(NULL AS BIGINT) AS to_position
  FROM (
    SELECT
      *
    FROM logged
    UNION ALL
    SELECT
      *
    FROM imported
  ) AS l
  UNION ALL
  SELECT
    h.source,
    h.scope,
    h.epoch,
    h.region,
    h.reason,
    h.from_ts,
    h.to_ts,
    h.from_position,
    h.to_position
  FROM held AS h
  UNION ALL
  SELECT
    g.source,
    g.scope,
    g.epoch,
    g.region,
    g.reason,
    g.from_ts,
    g.to_ts - 1 AS to_ts,
    g.from_position,
    g.to_position
  FROM raw_gaps AS g
  JOIN raw_backups AS b
    ON g.backup_id = b.backup_id
  WHERE
    b.state IN ('complete', 'deleted') AND b.source_kind <> 'changes'
  UNION ALL
  SELECT
    h.source,
    h.scope,
    h.epoch,
    h.region,
    'elsewhere' AS reason,
    g.from_ts,
    g.to_ts - 1 AS to_ts,
    TRY_CAST(NULL AS BIGINT) AS from_position,
    h.from_position AS to_position
  FROM held AS h
  JOIN (
    SELECT DISTINCT
      d.source,
      d.scope,
      d.epoch,
      CASE WHEN d.reason <> 'recreated' THEN d.region END AS region,
      d.from_ts,
      d.to_ts
    FROM raw_gaps AS d
    JOIN raw_backups AS b
      ON d.backup_id = b.backup_id
    WHERE
      b.state IN ('complete', 'deleted')
  ) AS g
    ON h.source = g.source
    AND h.scope = g.scope
    AND h.epoch <> g.epoch
    AND h.region = COALESCE(g.region, h.region)
    AND h.from_ts < g.to_ts
    AND h.to_ts > g.from_ts
  WHERE
    h.reason = 'held'
  UNION ALL
  SELECT
    c.source,
    c.scope,
    c.epoch,
    c.region,
    c.reason,
    GREATEST(MIN(t.covers_from), MIN(c.from_ts)) AS from_ts,
    MAX(t.covers_to) AS to_ts,
    MIN(c.from_position) AS from_position,
    TRY_CAST(NULL AS BIGINT) AS to_position
  FROM causes AS c
  JOIN points AS t
    ON c.source = t.source
    AND c.scope = t.scope
    AND c.epoch = t.epoch
    AND c.generation = t.generation
    AND c.base = t.base
    AND c.link <= t.link
    AND t.link < c.unlinked
  GROUP BY
    c.source,
    c.scope,
    c.epoch,
    c.region,
    c.generation,
    c.base,
    c.link,
    c.reason
  UNION ALL
  SELECT
    p.source,
    p.scope,
    p.epoch,
    p.region,
    'pruned' AS reason,
    p.covers_from AS from_ts,
    LEAST(
      COALESCE(p.next_from, p.chain_to),
      CASE
        WHEN p.kept_min_ts IS NULL OR p.kept_min_ts > p.gone_max_ts
        THEN p.gone_max_ts
        ELSE p.kept_min_ts
      END - 1
    ) AS to_ts,
    TRY_CAST(NULL AS BIGINT) AS from_position,
    TRY_CAST(NULL AS BIGINT) AS to_position
  FROM pruned AS p
  WHERE
    NOT p.gone_max_ts IS NULL
  UNION ALL
  SELECT
    c.source,
    c.scope,
    c.epoch,
    c.region,
    'compacted' AS reason,
    c.covers_from AS from_ts,
    c.covers_to - 1 AS to_ts,
    TRY_CAST(NULL AS BIGINT) AS from_position,
    TRY_CAST(NULL AS BIGINT) AS to_position
  FROM replaced AS c
  UNION ALL
  SELECT
    l.source,
    l.scope,
    l.epoch,
    l.region,
    'pruned' AS reason,
    t.covers_from AS from_ts,
    LEAST(o.end_ts, t.covers_to - 1) AS to_ts,
    TRY_CAST(NULL AS BIGINT) AS from_position,
    TRY_CAST(NULL AS BIGINT) AS to_position
  FROM floors AS l
  JOIN (
    SELECT
      s.source,
      s.scope,
      s.epoch,
      s.generation,
      MAX(b.end_ts) AS end_ts
    FROM raw_scopes AS s
    SEMI JOIN scope_floors AS n
      ON s.source = n.source AND s.scope = n.scope AND s.epoch = n.epoch
    JOIN raw_backups AS b
      ON s.backup_id = b.backup_id
    WHERE
      b.state = 'complete'
    GROUP BY
      s.source,
      s.scope,
      s.epoch,
      s.generation
  ) AS o
    ON l.source = o.source
    AND l.scope = o.scope
    AND l.epoch = o.epoch
    AND l.generation > o.generation
  JOIN (
    SELECT
      p.*,
      LAG(p.epoch) OVER (PARTITION BY p.source, p.scope ORDER BY p.place NULLS FIRST, p.number NULLS FIRST) AS epoch_before
    FROM points AS p
    SEMI JOIN scope_floors AS n
      ON p.source = n.source AND p.scope = n.scope
  ) AS t
    ON l.source = t.source
    AND l.scope = t.scope
    AND l.epoch = t.epoch
    AND COALESCE(t.epoch_before <> t.epoch, TRUE)
), steps AS (
  SELECT
    m.source,
    m.scope,
    m.epoch,
    m.region,
    CASE WHEN e.step = 1 THEN m.from_ts ELSE m.to_ts END AS ts,
    SUM(CASE WHEN m.reason = 'held' THEN e.step ELSE 0 END) AS held,
    SUM(CASE WHEN m.reason = 'whole' THEN e.step ELSE 0 END) AS whole,
    SUM(CASE WHEN m.reason = 'elsewhere' THEN e.step ELSE 0 END) AS elsewhere,
    SUM(CASE WHEN m.reason = 'out_of_sync' THEN e.step ELSE 0 END) AS forked,
    SUM(CASE WHEN m.reason = 'chain' THEN e.step ELSE 0 END) AS chain,
    SUM(CASE WHEN m.reason = 'left' THEN e.step ELSE 0 END) AS forsaken,
    SUM(CASE WHEN m.reason = 'purged' THEN e.step ELSE 0 END) AS purged,
    SUM(CASE WHEN m.reason = 'recreated' THEN e.step ELSE 0 END) AS recreated,
    SUM(CASE WHEN m.reason = 'skipped' THEN e.step ELSE 0 END) AS skipped,
    SUM(CASE WHEN m.reason = 'bridged' THEN e.step ELSE 0 END) AS bridged,
    SUM(CASE WHEN m.reason = 'compacted' THEN e.step ELSE 0 END) AS compacted,
    SUM(CASE WHEN m.reason = 'pruned' THEN e.step ELSE 0 END) AS pruned,
    SUM(CASE WHEN m.reason = 'missing' THEN e.step ELSE 0 END) AS missing,
    SUM(CASE WHEN m.reason = 'changed' THEN e.step ELSE 0 END) AS changed,
    SUM(CASE WHEN m.reason = 'damaged' THEN e.step ELSE 0 END) AS damaged,
    MAX(CASE WHEN e.step = 1 THEN m.from_position ELSE m.to_position END) AS position
  FROM marks AS m
  CROSS JOIN (
    SELECT
      1 AS step
    UNION ALL
    SELECT
      -1 AS step
  ) AS e
  WHERE
    m.from_ts < m.to_ts
  GROUP BY
    m.source,
    m.scope,
    m.epoch,
    m.region,
    CASE WHEN e.step = 1 THEN m.from_ts ELSE m.to_ts END
), named AS (
  SELECT
    s.source,
    s.scope,
    s.epoch,
    s.region,
    s.ts,
    s.position,
    CASE
      WHEN SUM(s.whole) OVER upto > 0
      THEN 'held'
      WHEN SUM(s.missing) OVER upto > 0
      THEN 'missing'
      WHEN SUM(s.damaged) OVER upto > 0
      THEN 'damaged'
      WHEN SUM(s.changed) OVER upto > 0
      THEN 'changed'
      WHEN SUM(s.pruned) OVER upto > 0
      THEN 'pruned'
      WHEN SUM(s.purged) OVER upto > 0
      THEN 'purged'
      WHEN SUM(s.recreated) OVER upto > 0
      THEN 'recreated'
      WHEN SUM(s.skipped) OVER upto > 0
      THEN 'skipped'
      WHEN SUM(s.bridged) OVER upto > 0
      THEN 'bridged'
      WHEN SUM(s.compacted) OVER upto > 0
      THEN 'compacted'
      WHEN SUM(s.forked) OVER upto > 0
      THEN 'out_of_sync'
      WHEN SUM(s.held) OVER upto > 0 AND SUM(s.elsewhere) OVER upto > 0
      THEN 'nothing'
      WHEN SUM(s.held) OVER upto > 0
      THEN 'held'
      WHEN SUM(s.forsaken) OVER upto > 0
      THEN 'out_of_sync'
      WHEN SUM(s.chain) OVER upto > 0
      THEN 'chain'
      ELSE 'nothing'
    END AS reason
  FROM steps AS s
  WINDOW upto AS (
    PARTITION BY s.source, s.scope, s.epoch, s.region
    ORDER BY s.ts NULLS FIRST
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
), changes AS (
  SELECT
    n.*,
    LAG(n.reason) OVER (PARTITION BY n.source, n.scope, n.epoch, n.region ORDER BY n.ts NULLS FIRST) AS before
  FROM named AS n
), intervals AS (
  SELECT
    c.source,
    c.scope,
    c.epoch,
    c.region,
    c.reason,
    c.ts AS from_ts,
    c.position AS from_position,
    LEAD(c.ts) OVER (PARTITION BY c.source, c.scope, c.epoch, c.region ORDER BY c.ts NULLS FIRST) AS to_ts,
    LEAD(c.position) OVER (PARTITION BY c.source, c.scope, c.epoch, c.region ORDER BY c.ts NULLS FIRST) AS to_position
  FROM changes AS c
  WHERE
    c.before IS NULL OR c.before <> c.reason
)
SELECT
  i.source,
  i.scope,
  i.epoch,
  i.region,
  CASE i.reason
    WHEN 'held'
    THEN 'restorable'
    WHEN 'out_of_sync'
    THEN 'fork'
    ELSE 'gap'
  END AS status,
  CASE WHEN i.reason <> 'held' THEN i.reason END AS reason,
  CASE WHEN i.from_ts >= 0 THEN i.from_ts END AS from_ts,
  i.to_ts,
  TIMESTAMP_MILLIS(
    CASE
      WHEN i.from_ts >= 0
      THEN i.from_ts // CASE d.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END
    END
  ) AS from_time,
  TIMESTAMP_MILLIS(i.to_ts // CASE d.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS to_time,
  i.from_position,
  i.to_position,
  ROW_NUMBER() OVER (
    PARTITION BY i.source, i.scope, i.region
    ORDER BY i.to_ts DESC, i.epoch NULLS FIRST
  ) = 1 AS newest
FROM intervals AS i
JOIN (
  SELECT
    source,
    MIN(ts_domain) AS ts_domain
  FROM raw_backups
  GROUP BY
    source
) AS d
  ON i.source = d.source
WHERE
  NOT i.to_ts IS NULL AND i.reason <> 'nothing'
