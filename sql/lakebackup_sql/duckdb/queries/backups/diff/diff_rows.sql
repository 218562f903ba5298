-- ac40ff7a77f2b3b9 changes
SELECT
  *
FROM changes
ORDER BY
  change NULLS FIRST,
  scope NULLS FIRST,
  region NULLS FIRST,
  path NULLS FIRST,
  old_path NULLS FIRST
