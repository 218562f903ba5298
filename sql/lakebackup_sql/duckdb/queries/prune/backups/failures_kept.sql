-- 1dffcf647efdd561 raw_failures
SELECT
  f.source,
  f.source_kind,
  f.run,
  f.started_at,
  f."at",
  f.error,
  f.message,
  f.exit_code,
  f.actor
FROM raw_failures AS f
WHERE
  f."at" >= $before
