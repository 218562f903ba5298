-- 381af87ca4fbf8cc raw_failures
SELECT
  MAX(f."at") AS "at"
FROM raw_failures AS f
WHERE
  f.source = $source AND f.run = $run
HAVING
  ARG_MAX(f.exit_code, f."at") <> 0
