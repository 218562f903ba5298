-- c17d6249becd01ff log_tasks
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
