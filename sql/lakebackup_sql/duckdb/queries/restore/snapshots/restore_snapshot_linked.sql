-- e6e483bdc36d4af5 snapshot_selected
SELECT
  TRY_CAST(COALESCE(SUM(t.bytes * (
    t.names - 1
  )), 0) AS BIGINT) AS bytes
FROM (
  SELECT
    s.bytes,
    COUNT(*) AS names
  FROM snapshot_selected AS s
  WHERE
    s.links > 1
  GROUP BY
    s.destination,
    s.path,
    s.position,
    s.bytes,
    s.mtime_ms,
    s.mode,
    s.sha256
) AS t
