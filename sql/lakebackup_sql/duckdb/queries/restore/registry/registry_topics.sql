-- 8551db092745da8c schemas
SELECT
  scope,
  COUNT(DISTINCT log_position) AS records
FROM schemas
WHERE
  source = $source
GROUP BY
  scope
ORDER BY
  scope NULLS FIRST
