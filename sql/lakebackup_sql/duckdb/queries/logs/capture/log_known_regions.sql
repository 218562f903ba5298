-- 5e28859bbf3973c2 log_regions
SELECT
  region,
  store,
  resolved_ts,
  closed,
  successors
FROM log_regions
WHERE
  source = $source
