-- f1c210506524681a status
SELECT
  *
FROM status
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR source = $source
ORDER BY
  rank NULLS FIRST,
  source NULLS FIRST
