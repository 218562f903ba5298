-- 3d6c7e77c6a79316 doomed_log files
SELECT
  r.reason,
  COUNT(*) AS files,
  CAST(SUM(r.bytes) AS BIGINT) AS bytes,
  MAX(a.files) AS of_files,
  MAX(a.bytes) AS of_bytes
FROM doomed_log AS r
CROSS JOIN (
  SELECT
    COUNT(*) AS files,
    TRY_CAST(COALESCE(SUM(f.bytes), 0) AS BIGINT) AS bytes
  FROM files AS f
  WHERE
    f.source = $source AND f.format IN ('log-arrow-1', 'delta')
) AS a
GROUP BY
  r.reason
ORDER BY
  r.reason NULLS FIRST
