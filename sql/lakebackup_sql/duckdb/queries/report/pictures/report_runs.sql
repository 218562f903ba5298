-- cb6eb3cceb57d390 backups due_instants failures unusable
WITH ended AS (
  SELECT
    b.source,
    b.backup_id,
    b.bytes,
    (
      b.finished_at - b.started_at
    ) // 1000 AS duration_ms,
    b.finished_at // 86400000000 AS day,
    CASE WHEN b.ts_domain = 'ms' THEN b.end_ts ELSE b.started_at // 1000 END AS began_ts
  FROM backups AS b
), missed AS (
  SELECT
    e.source,
    e.due_ts // 86400000 AS day
  FROM (
    SELECT
      r.source,
      r.due_ts,
      r.next_ts,
      MIN(r.began_ts) OVER (
        PARTITION BY r.source
        ORDER BY r.ts NULLS FIRST
        RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
      ) AS came_ts
    FROM (
      SELECT
        source,
        due_ts AS ts,
        due_ts,
        next_ts,
        TRY_CAST(NULL AS BIGINT) AS began_ts
      FROM due_instants
      UNION ALL
      SELECT
        source,
        began_ts AS ts,
        TRY_CAST(NULL AS BIGINT) AS due_ts,
        TRY_CAST(NULL AS BIGINT) AS next_ts,
        began_ts
      FROM ended
    ) AS r
  ) AS e
  WHERE
    NOT e.due_ts IS NULL AND COALESCE(e.came_ts >= e.next_ts, TRUE)
), counted AS (
  SELECT
    e.source,
    e.day,
    1 AS ended,
    CASE WHEN u.backup_id IS NULL THEN 0 ELSE 1 END AS failed,
    0 AS missed,
    e.duration_ms,
    e.bytes
  FROM ended AS e
  LEFT JOIN (
    SELECT DISTINCT
      backup_id
    FROM unusable
    WHERE
      reason <> 'pruned'
  ) AS u
    ON e.backup_id = u.backup_id
  WHERE
    e.day > $now_ms // 86400000 - $days
  UNION ALL
  SELECT
    f.source,
    f."at" // 86400000000 AS day,
    1 AS ended,
    1 AS failed,
    0 AS missed,
    TRY_CAST(NULL AS BIGINT) AS duration_ms,
    0 AS bytes
  FROM failures AS f
  WHERE
    f."at" // 86400000000 > $now_ms // 86400000 - $days
  UNION ALL
  SELECT
    m.source,
    m.day,
    0 AS ended,
    0 AS failed,
    1 AS missed,
    TRY_CAST(NULL AS BIGINT) AS duration_ms,
    0 AS bytes
  FROM missed AS m
)
SELECT
  source,
  day * 86400000 AS day_ts,
  CAST(SUM(ended - failed) AS BIGINT) AS succeeded,
  CAST(SUM(failed) AS BIGINT) AS failed,
  CAST(SUM(missed) AS BIGINT) AS missed,
  MAX(duration_ms) AS longest_ms,
  CAST(SUM(bytes) AS BIGINT) AS bytes
FROM counted
GROUP BY
  source,
  day
HAVING
  SUM(ended) + SUM(missed) > 0
ORDER BY
  source NULLS FIRST,
  day NULLS FIRST
