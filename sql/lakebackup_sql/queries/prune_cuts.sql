-- How far each partition may be cut by the relation rules (a row a topic and epoch), partitions of the relation
-- held and backups of the relation leaving left out: below time_floor no file holds a record as young as cutoff_ts or one without a time; from
-- size_floor on, the newest chain has keep_bytes. superseded: files of generations before the newest complete one.
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
  COALESCE(t.oldest_young, t.most, t.least) AS time_floor,
  COALESCE(s.size_floor, t.least) AS size_floor
FROM (
  SELECT
    f.source, f.scope, f.epoch, f.region,
    COUNT(*) AS files,
    CAST(SUM(f.bytes) AS BIGINT) AS bytes,
    MIN(f.start_position) AS least,
    CAST(SUM(CASE WHEN r.compacted AND f.generation < r.generation THEN 1 ELSE 0 END) AS BIGINT) AS superseded,
    MAX(CASE WHEN r.compacted THEN r.generation ELSE 0 END) AS compacted_to,
    MAX(CASE WHEN r.compacted AND f.generation < r.generation THEN NULL ELSE f.end_position END) AS most,
    MIN(
      CASE
        WHEN r.compacted AND f.generation < r.generation THEN NULL
        WHEN r.cutoff_ts IS NULL OR f.max_ts >= r.cutoff_ts OR f.min_ts < 0 THEN f.start_position
      END
    ) AS oldest_young
  FROM files AS f
  JOIN rules AS r
    ON f.source = r.source
    AND f.scope = r.scope
    AND f.epoch = r.epoch
  LEFT ANTI JOIN held AS h
    ON f.scope = h.scope
    AND f.epoch = h.epoch
    AND f.region = h.region
  LEFT ANTI JOIN leaving AS v
    ON f.backup_id = v.backup_id
  WHERE f.role = 'data'
  GROUP BY f.source, f.scope, f.epoch, f.region
) AS t
LEFT JOIN (
  SELECT
    w.source, w.scope, w.epoch, w.region,
    COALESCE(
      MIN(CASE WHEN w.newer_bytes < w.keep_bytes THEN w.start_position END), MAX(w.end_position)
    ) AS size_floor
  FROM (
    SELECT
      f.source, f.scope, f.epoch, f.region, f.start_position, f.end_position, r.keep_bytes,
      SUM(f.bytes) OVER (
        PARTITION BY f.source, f.scope, f.epoch, f.region ORDER BY f.start_position DESC
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
    WHERE f.role = 'data'
      AND r.keep_bytes IS NOT NULL
  ) AS w
  GROUP BY w.source, w.scope, w.epoch, w.region
) AS s
  ON t.source = s.source
  AND t.scope = s.scope
  AND t.epoch = s.epoch
  AND t.region = s.region
ORDER BY t.scope, t.epoch, t.region
