-- c531046e6ceb7394 raw_log_tasks
SELECT
  t.source,
  t."at",
  t.actor,
  t.state,
  t.settings,
  t.detail,
  TIMESTAMP_MICROS(t."at") AS time
FROM (
  SELECT
    r.*,
    ROW_NUMBER() OVER (PARTITION BY r.source ORDER BY r."at" DESC) AS nth
  FROM raw_log_tasks AS r
) AS t
WHERE
  t.nth = 1
