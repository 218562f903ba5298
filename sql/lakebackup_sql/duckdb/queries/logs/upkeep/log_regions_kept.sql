-- b632bbc8c6ad521f raw_backups raw_log_regions
SELECT
  l.backup_id,
  l.number,
  l.source,
  l.region,
  l.store,
  l.resolved_ts,
  l.closed,
  l.successors
FROM raw_log_regions AS l
LEFT JOIN (
  SELECT
    r.source,
    r.region,
    MAX(r.number) AS number
  FROM raw_log_regions AS r
  JOIN raw_backups AS b
    ON r.backup_id = b.backup_id
  WHERE
    b.state <> 'unconfirmed'
  GROUP BY
    r.source,
    r.region
) AS n
  ON l.source = n.source AND l.region = n.region
WHERE
  n.number IS NULL OR l.number >= n.number
