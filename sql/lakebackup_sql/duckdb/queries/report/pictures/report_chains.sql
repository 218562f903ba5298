-- b35398157ee6e0a7 backups unusable
SELECT
  c.source,
  c.base,
  c.branch,
  CASE
    WHEN c.branch = 0
    THEN c.base
    ELSE c.base || ' / ' || TRY_CAST(c.branch AS TEXT)
  END AS line,
  c.from_ts,
  c.to_ts,
  c.restorable_ts,
  c.backups
FROM (
  SELECT
    b.source,
    b.base,
    b.branch,
    MIN(COALESCE(EPOCH_MS(b.end_time), b.end_ts)) AS from_ts,
    MAX(COALESCE(EPOCH_MS(b.end_time), b.end_ts)) AS to_ts,
    MAX(CASE WHEN u.backup_id IS NULL THEN COALESCE(EPOCH_MS(b.end_time), b.end_ts) END) AS restorable_ts,
    COUNT(*) AS backups,
    ROW_NUMBER() OVER (PARTITION BY b.source ORDER BY MAX(b.number) DESC) AS age
  FROM backups AS b
  LEFT JOIN (
    SELECT DISTINCT
      backup_id
    FROM unusable
  ) AS u
    ON b.backup_id = u.backup_id
  GROUP BY
    b.source,
    b.base,
    b.branch
) AS c
WHERE
  c.age <= $chains
ORDER BY
  c.source NULLS FIRST,
  c.from_ts NULLS FIRST,
  c.age DESC
