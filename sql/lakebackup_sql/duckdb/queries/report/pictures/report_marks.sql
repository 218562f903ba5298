-- ff26bc36bb45d3d3 backups drawn unusable
SELECT
  m.source,
  m.line,
  m.kind,
  m.status,
  MAX(m.end_ts) AS ts,
  COUNT(*) AS backups
FROM (
  SELECT
    d.source,
    d.line,
    COALESCE(EPOCH_MS(b.end_time), b.end_ts) AS end_ts,
    CASE WHEN b.kind = 'full' THEN 'full' ELSE 'incremental' END AS kind,
    CASE
      WHEN b.state = 'out_of_sync'
      THEN 'fork'
      WHEN NOT u.backup_id IS NULL
      THEN 'unusable'
      ELSE 'restorable'
    END AS status,
    FLOOR(
      (
        COALESCE(EPOCH_MS(b.end_time), b.end_ts) - MIN(d.from_ts) OVER (PARTITION BY d.source)
      ) * $steps / NULLIF(
        GREATEST(
          MAX(d.to_ts) OVER (PARTITION BY d.source) - MIN(d.from_ts) OVER (PARTITION BY d.source),
          1
        ),
        0
      )
    ) AS step
  FROM drawn AS d
  JOIN backups AS b
    ON d.source = b.source AND d.base = b.base AND d.branch = b.branch
  LEFT JOIN (
    SELECT DISTINCT
      backup_id
    FROM unusable
  ) AS u
    ON b.backup_id = u.backup_id
) AS m
GROUP BY
  m.source,
  m.line,
  m.kind,
  m.status,
  m.step
ORDER BY
  m.source NULLS FIRST,
  m.line NULLS FIRST,
  ts NULLS FIRST,
  m.kind NULLS FIRST,
  m.status NULLS FIRST
