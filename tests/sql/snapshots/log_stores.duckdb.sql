SELECT
  store,
  MIN(resolved_ts) AS next_backup_ts,
  COUNT(*) AS regions
FROM log_regions
WHERE
  source = $source AND NOT closed
GROUP BY
  store
ORDER BY
  LENGTH(store) NULLS FIRST,
  store NULLS FIRST
