-- How far each partition of :source may be cut by the relation rules (a row a topic and epoch), partitions of the
-- relation held and backups of the relation leaving left out: below time_floor no file holds a record as young as
-- cutoff_ts or one without a time; from size_floor on, the newest chain has keep_bytes. superseded: files of generations
-- before compacted_to, the newest complete one. What the relation needed names (rows of prune_needed) is not cut,
-- whatever the rules are.
-- bound: true: without the relation needed the rules would cut more
WITH limits AS (
  SELECT
    r.scope, r.epoch, r.cutoff_ts,
    CASE WHEN r.compacted THEN r.generation ELSE 0 END AS newest_generation,
    CASE WHEN r.compacted THEN LEAST(r.generation, g.generation) ELSE 0 END AS compacted_to
  FROM rules AS r
  LEFT JOIN (
    SELECT n.scope, n.epoch, MIN(n.generation) AS generation FROM needed AS n GROUP BY n.scope, n.epoch
  ) AS g ON r.scope = g.scope AND r.epoch = g.epoch
  WHERE r.source = :source
)
SELECT
  t.scope, t.epoch, t.region, t.files, t.bytes, t.least, t.superseded, t.compacted_to,
  LEAST(COALESCE(t.oldest_young, t.most, t.least), n.position) AS time_floor,
  LEAST(COALESCE(s.size_floor, t.least), n.position) AS size_floor,
  t.compacted_to < t.newest_generation
    OR COALESCE(n.position < COALESCE(t.oldest_young, t.most), FALSE)
    OR COALESCE(n.position < s.size_floor, FALSE) AS bound
FROM (
  SELECT
    f.scope, f.epoch, f.region,
    COUNT(*) AS files,
    CAST(SUM(f.bytes) AS BIGINT) AS bytes,
    MIN(f.start_position) AS least,
    CAST(SUM(CASE WHEN f.generation < l.compacted_to THEN 1 ELSE 0 END) AS BIGINT) AS superseded,
    MAX(l.compacted_to) AS compacted_to,
    MAX(l.newest_generation) AS newest_generation,
    MAX(CASE WHEN f.generation < l.compacted_to THEN NULL ELSE f.end_position END) AS most,
    MIN(
      CASE
        WHEN f.generation < l.compacted_to THEN NULL
        WHEN l.cutoff_ts IS NULL OR f.max_ts >= l.cutoff_ts OR f.min_ts < 0 THEN f.start_position
      END
    ) AS oldest_young
  FROM files AS f
  JOIN limits AS l ON f.scope = l.scope AND f.epoch = l.epoch
  LEFT ANTI JOIN held AS h ON f.scope = h.scope AND f.epoch = h.epoch AND f.region = h.region
  LEFT ANTI JOIN leaving AS v ON f.backup_id = v.backup_id
  WHERE f.source = :source
    AND f.role = 'data'
  GROUP BY f.scope, f.epoch, f.region
) AS t
LEFT JOIN needed AS n ON t.scope = n.scope AND t.epoch = n.epoch AND t.region = n.region
LEFT JOIN (
  SELECT
    w.scope, w.epoch, w.region,
    COALESCE(
      MIN(CASE WHEN w.newer_bytes < w.keep_bytes THEN w.start_position END), MAX(w.end_position)
    ) AS size_floor
  FROM (
    SELECT
      f.scope, f.epoch, f.region, f.start_position, f.end_position, r.keep_bytes,
      SUM(f.bytes) OVER (
        PARTITION BY f.scope, f.epoch, f.region ORDER BY f.start_position DESC
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) - f.bytes AS newer_bytes
    FROM files AS f
    JOIN rules AS r
      ON f.source = r.source AND f.scope = r.scope AND f.epoch = r.epoch AND f.generation = r.generation
    JOIN backups AS b
      ON f.backup_id = b.backup_id AND b.base = r.base AND b.link <= r.link AND r.link < b.unlinked
      AND b.state = 'complete'
    WHERE f.source = :source
      AND f.role = 'data'
      AND r.keep_bytes IS NOT NULL
  ) AS w
  GROUP BY w.scope, w.epoch, w.region
) AS s ON t.scope = s.scope AND t.epoch = s.epoch AND t.region = s.region
ORDER BY t.scope, t.epoch, t.region
