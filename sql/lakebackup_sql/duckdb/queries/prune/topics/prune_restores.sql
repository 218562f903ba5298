-- 66c47bfb1e745787 restores
SELECT
  restore_id,
  state,
  "at",
  detail
FROM restores
WHERE
  source = $source AND scope IS NULL AND state IN ('running', 'failed')
ORDER BY
  "at" NULLS FIRST
