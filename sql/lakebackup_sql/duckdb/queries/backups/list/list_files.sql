-- a4bbb21d8e1659e3 files
SELECT
  *
FROM files
WHERE
  backup_id = $backup_id
ORDER BY
  scope NULLS FIRST,
  epoch NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST,
  start_position NULLS FIRST
