SELECT
  source,
  state,
  "at",
  actor,
  settings,
  detail
FROM log_tasks
WHERE
  source = $source
