SELECT
  *
FROM restores
WHERE
  restore_id = $restore_id
ORDER BY
  scope NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST
