-- 0b4f3e308885d295 future_backups horizon raw_backups
SELECT
  b.backup_id,
  b.number,
  n.end_ts,
  b.source_kind
FROM raw_backups AS b
LEFT JOIN (
  SELECT
    r.source,
    ARG_MAX(r.end_ts, r.number) AS end_ts
  FROM raw_backups AS r
  ANTI JOIN future_backups AS f
    ON r.backup_id = f.backup_id
  WHERE
    r.end_ts <= (
      SELECT
        horizon_ms
      FROM horizon
    )
  GROUP BY
    r.source
) AS n
  ON b.source = n.source
WHERE
  b.source = $source
ORDER BY
  b.number DESC
LIMIT 1
