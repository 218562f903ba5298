-- 3341b70cd131a523 status
SELECT
  *
FROM status
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR source = $source
ORDER BY
  CASE status
    WHEN 'DAMAGED'
    THEN 1
    WHEN 'UNPROTECTED'
    THEN 2
    WHEN 'LATE'
    THEN 3
    WHEN 'UNVERIFIED'
    THEN 4
    ELSE 5
  END NULLS FIRST,
  source NULLS FIRST
