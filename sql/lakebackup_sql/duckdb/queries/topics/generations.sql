-- 23cc685870f2f628 backups future_backups raw_files raw_scopes
WITH numbers AS (
  SELECT
    s.scope,
    s.epoch,
    MAX(s.generation) AS last,
    MAX(CASE WHEN b.present THEN s.generation END) AS generation
  FROM raw_scopes AS s
  JOIN (
    SELECT
      backup_id,
      base = $base
      AND link <= $link
      AND $link < unlinked
      AND state = 'complete'
      AND chained AS present
    FROM backups
    WHERE
      source = $source
  ) AS b
    ON s.backup_id = b.backup_id
  WHERE
    s.source = $source
  GROUP BY
    s.scope,
    s.epoch
), held AS (
  SELECT
    s.scope,
    s.epoch,
    s.generation,
    b.backup_id,
    b.number,
    b.place,
    b.end_ts,
    b.finished_at,
    MIN(b.number) OVER (PARTITION BY s.scope, s.epoch, b.end_ts) < b.number AS compaction,
    b.base = $base
    AND b.link <= $link
    AND $link < b.unlinked
    AND b.state = 'complete'
    AND b.chained AS present
  FROM raw_scopes AS s
  JOIN backups AS b
    ON s.backup_id = b.backup_id
  WHERE
    s.source = $source
    AND b.source = $source
    AND (
      TRY_CAST($sized AS TEXT) IS NULL
      OR ARRAY_CONTAINS(STR_SPLIT_REGEX($sized, ','), s.scope)
    )
), spans AS (
  SELECT
    h.scope,
    h.epoch,
    h.backup_id,
    h.number,
    CASE WHEN u.backup_id IS NULL THEN h.end_ts END AS end_ts,
    MIN(h.number) OVER (PARTITION BY h.scope, h.epoch) AS first_number,
    CASE
      WHEN NOT h.compaction
      THEN TRY_CAST(FLOOR(h.finished_at / NULLIF(1000, 0)) AS BIGINT) - COALESCE(
        LAG(h.end_ts) OVER (PARTITION BY h.scope, h.epoch ORDER BY h.place NULLS FIRST, h.number NULLS FIRST),
        h.end_ts
      )
    END AS span_ms
  FROM held AS h
  JOIN numbers AS n
    ON h.scope = n.scope AND h.epoch = n.epoch AND h.generation = n.generation
  LEFT JOIN future_backups AS u
    ON h.backup_id = u.backup_id
  WHERE
    h.present
), sizes AS (
  SELECT
    s.scope,
    s.epoch,
    CAST(SUM(f.bytes) AS BIGINT) AS bytes,
    CAST(SUM(CASE WHEN s.number = s.first_number THEN f.bytes ELSE 0 END) AS BIGINT) AS first_bytes
  FROM raw_files AS f
  JOIN spans AS s
    ON s.backup_id = f.backup_id AND s.scope = f.scope AND s.epoch = f.epoch
  WHERE
    f.source = $source
    AND f.role = 'data'
    AND (
      TRY_CAST($sized AS TEXT) IS NULL
      OR ARRAY_CONTAINS(STR_SPLIT_REGEX($sized, ','), f.scope)
    )
  GROUP BY
    s.scope,
    s.epoch
), ends AS (
  SELECT
    scope,
    epoch,
    MAX(end_ts) AS end_ts,
    MAX(span_ms) AS longest_ms
  FROM spans
  GROUP BY
    scope,
    epoch
)
SELECT
  n.scope,
  n.epoch,
  n.last,
  n.generation,
  COALESCE(z.first_bytes, 0) AS first_bytes,
  COALESCE(z.bytes, 0) AS bytes,
  e.end_ts,
  COALESCE(e.longest_ms, 0) AS longest_ms
FROM numbers AS n
LEFT JOIN ends AS e
  ON n.scope = e.scope AND n.epoch = e.epoch
LEFT JOIN sizes AS z
  ON n.scope = z.scope AND n.epoch = z.epoch
ORDER BY
  n.scope NULLS FIRST,
  n.epoch NULLS FIRST
