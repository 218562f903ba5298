-- ede435df1cc5841b raw_queue_restores
SELECT
  scope,
  epoch,
  region,
  base_position,
  end_position
FROM raw_queue_restores
WHERE
  restore_id = $restore_id
ORDER BY
  scope NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST
