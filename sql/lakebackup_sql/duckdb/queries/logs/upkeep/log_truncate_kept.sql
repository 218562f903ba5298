-- 11b76ed757153271 holds log_flushes policies
SELECT
  p.window_from_ts,
  p.redundancy,
  p.min_redundancy,
  h.held_ts
FROM (
  SELECT
    MIN(b.end_ts) AS held_ts
  FROM log_flushes AS b
  JOIN holds AS k
    ON b.backup_id = k.backup_id
  WHERE
    b.source = $source
) AS h
LEFT JOIN policies AS p
  ON p.source = $source
