-- 02fcb7b99221448b queue_unended
SELECT
  scope,
  epoch,
  region,
  MIN(first_position) AS first_position
FROM queue_unended
GROUP BY
  scope,
  epoch,
  region
ORDER BY
  scope NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST
