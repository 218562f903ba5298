-- 27862ed9116ed6fe backups horizon
WITH dated AS (
  SELECT
    b.source,
    b.backup_id,
    b.number,
    b.place,
    b.kind,
    b.source_kind,
    b.end_ts,
    b.end_time,
    CASE b.ts_domain
      WHEN 'ms'
      THEN b.end_ts
      WHEN 'tso'
      THEN GREATEST(b.end_ts // 262144, TRY_CAST(FLOOR(b.started_at / NULLIF(1000, 0)) AS BIGINT))
      ELSE TRY_CAST(FLOOR(b.started_at / NULLIF(1000, 0)) AS BIGINT)
    END AS ended_ms
  FROM backups AS b
  WHERE
    b.state <> 'deleted'
), timed AS (
  SELECT
    d.*,
    MIN(CASE WHEN d.number = d.place THEN d.ended_ms END) OVER (
      PARTITION BY d.source
      ORDER BY d.place DESC, d.number DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS later_ms,
    MAX(d.ended_ms) OVER (
      PARTITION BY d.source
      ORDER BY d.place NULLS FIRST, d.number NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS earlier_ms
  FROM dated AS d
  WHERE
    d.source_kind IN ('kafka', 'snapshot', 'queues')
    AND d.ended_ms <= (
      SELECT
        horizon_ms
      FROM horizon
    )
), pairs AS (
  SELECT
    e.backup_id,
    COUNT(*) OVER (PARTITION BY e.source, e.backup_id) AS later,
    COUNT(*) OVER (PARTITION BY l.source, l.backup_id) AS earlier
  FROM (
    SELECT
      *
    FROM timed
    WHERE
      ended_ms > later_ms + (
        SELECT
          skew_ms
        FROM horizon
      )
  ) AS e
  JOIN (
    SELECT
      *
    FROM timed
    WHERE
      ended_ms < earlier_ms - (
        SELECT
          skew_ms
        FROM horizon
      )
      AND number = place
  ) AS l
    ON e.source = l.source
    AND e.place < l.place
    AND e.ended_ms > l.ended_ms + (
      SELECT
        skew_ms
      FROM horizon
    )
)
SELECT
  d.source,
  d.backup_id,
  d.number,
  d.kind,
  d.source_kind,
  d.end_ts,
  d.end_time,
  CASE WHEN d.ended_ms > n.horizon_ms THEN d.ended_ms - n.now_ms END AS ahead_ms
FROM dated AS d
CROSS JOIN horizon AS n
LEFT JOIN (
  SELECT DISTINCT
    backup_id
  FROM pairs
  WHERE
    later > earlier
) AS p
  ON d.backup_id = p.backup_id
WHERE
  d.ended_ms > n.horizon_ms OR NOT p.backup_id IS NULL
