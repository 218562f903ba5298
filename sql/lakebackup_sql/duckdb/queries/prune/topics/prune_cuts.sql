-- 0ea20b5d860928c3 backups chain_points files held kept leaving raw_scopes rules
WITH points AS (
  SELECT
    t.scope,
    t.epoch,
    t.generation,
    t.backup_id,
    t.base,
    t.link
  FROM chain_points AS t
  JOIN kept AS k
    ON t.backup_id = k.backup_id
), added AS (
  SELECT
    s.backup_id,
    s.scope,
    s.epoch,
    s.generation,
    MIN(p.link) OVER (
      PARTITION BY s.scope, s.epoch, s.generation, b.base
      ORDER BY b.link DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS next
  FROM raw_scopes AS s
  JOIN backups AS b
    ON s.backup_id = b.backup_id
  LEFT JOIN points AS p
    ON s.backup_id = p.backup_id AND s.scope = p.scope AND s.epoch = p.epoch
  SEMI JOIN rules AS r
    ON s.source = r.source
), needed AS (
  SELECT
    f.scope,
    f.epoch,
    f.region,
    MIN(f.start_position) AS position
  FROM files AS f
  JOIN backups AS b
    ON f.backup_id = b.backup_id
  JOIN added AS a
    ON f.backup_id = a.backup_id
    AND f.scope = a.scope
    AND f.epoch = a.epoch
    AND f.generation = a.generation
    AND a.next < b.unlinked
  WHERE
    f.role = 'data' AND b.state = 'complete'
  GROUP BY
    f.scope,
    f.epoch,
    f.region
), bounded AS (
  SELECT
    f.source,
    f.scope,
    f.epoch,
    f.region,
    f.generation,
    f.bytes,
    f.start_position,
    f.end_position,
    f.min_ts,
    f.max_ts,
    r.cutoff_ts,
    n.position,
    CASE WHEN r.compacted THEN r.generation ELSE 0 END AS newest_generation,
    CASE WHEN r.compacted THEN LEAST(r.generation, g.generation) ELSE 0 END AS compacted_to
  FROM files AS f
  JOIN rules AS r
    ON f.source = r.source AND f.scope = r.scope AND f.epoch = r.epoch
  LEFT JOIN (
    SELECT
      p.scope,
      p.epoch,
      MIN(p.generation) AS generation
    FROM points AS p
    GROUP BY
      p.scope,
      p.epoch
  ) AS g
    ON f.scope = g.scope AND f.epoch = g.epoch
  LEFT JOIN needed AS n
    ON f.scope = n.scope AND f.epoch = n.epoch AND f.region = n.region
  ANTI JOIN held AS h
    ON f.scope = h.scope AND f.epoch = h.epoch AND f.region = h.region
  ANTI JOIN leaving AS v
    ON f.backup_id = v.backup_id
  WHERE
    f.role = 'data'
)
SELECT
  t.source,
  t.scope,
  t.epoch,
  t.region,
  t.files,
  t.bytes,
  t.least,
  t.superseded,
  t.compacted_to,
  LEAST(COALESCE(t.oldest_young, t.most, t.least), t.position) AS time_floor,
  LEAST(COALESCE(s.size_floor, t.least), t.position) AS size_floor,
  t.compacted_to < t.newest_generation
  OR COALESCE(t.position < COALESCE(t.oldest_young, t.most), FALSE)
  OR COALESCE(t.position < s.size_floor, FALSE) AS bound
FROM (
  SELECT
    f.source,
    f.scope,
    f.epoch,
    f.region,
    f.position,
    COUNT(*) AS files,
    CAST(SUM(f.bytes) AS BIGINT) AS bytes,
    MIN(f.start_position) AS least,
    CAST(SUM(CASE WHEN f.generation < f.compacted_to THEN 1 ELSE 0 END) AS BIGINT) AS superseded,
    MAX(f.compacted_to) AS compacted_to,
    MAX(f.newest_generation) AS newest_generation,
    MAX(CASE WHEN f.generation < f.compacted_to THEN NULL ELSE f.end_position END) AS most,
    MIN(
      CASE
        WHEN f.generation < f.compacted_to
        THEN NULL
        WHEN f.cutoff_ts IS NULL OR f.max_ts >= f.cutoff_ts OR f.min_ts < 0
        THEN f.start_position
      END
    ) AS oldest_young
  FROM bounded AS f
  GROUP BY
    f.source,
    f.scope,
    f.epoch,
    f.region,
    f.position
) AS t
LEFT JOIN (
  SELECT
    w.source,
    w.scope,
    w.epoch,
    w.region,
    COALESCE(
      MIN(CASE WHEN w.newer_bytes < w.keep_bytes THEN w.start_position END),
      MAX(w.end_position)
    ) AS size_floor
  FROM (
    SELECT
      f.source,
      f.scope,
      f.epoch,
      f.region,
      f.start_position,
      f.end_position,
      r.keep_bytes,
      SUM(f.bytes) OVER (
        PARTITION BY f.source, f.scope, f.epoch, f.region
        ORDER BY f.start_position DESC
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) - f.bytes AS newer_bytes
    FROM files AS f
    JOIN rules AS r
      ON f.source = r.source
      AND f.scope = r.scope
      AND f.epoch = r.epoch
      AND f.generation = r.generation
    JOIN backups AS b
      ON f.backup_id = b.backup_id
      AND b.base = r.base
      AND b.link <= r.link
      AND r.link < b.unlinked
      AND b.state = 'complete'
    WHERE
      f.role = 'data' AND NOT r.keep_bytes IS NULL
  ) AS w
  GROUP BY
    w.source,
    w.scope,
    w.epoch,
    w.region
) AS s
  ON t.source = s.source
  AND t.scope = s.scope
  AND t.epoch = s.epoch
  AND t.region = s.region
ORDER BY
  t.scope NULLS FIRST,
  t.epoch NULLS FIRST,
  t.region NULLS FIRST
