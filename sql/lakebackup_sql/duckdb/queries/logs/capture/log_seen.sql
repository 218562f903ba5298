-- 1124332d2deb2ad4 files
SELECT
  MAX(max_ts) AS seen_ts
FROM files
WHERE
  source = $source AND format = 'log-regions'
