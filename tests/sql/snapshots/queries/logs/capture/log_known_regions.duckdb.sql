SELECT
  region,
  store,
  resolved_ts,
  closed,
  successors
FROM log_regions
WHERE
  source = $source
