-- bedbd15c93be5dbc raw_queue_restores
SELECT
  restore_id,
  scope,
  epoch,
  region,
  base_position AS base
FROM raw_queue_restores
WHERE
  source = $source AND cluster = $cluster
ORDER BY
  "at" NULLS FIRST,
  restore_id NULLS FIRST,
  scope NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST
