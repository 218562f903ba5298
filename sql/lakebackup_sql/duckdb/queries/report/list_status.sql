-- 87dba13f35ca0542 status
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
    WHEN 'FAILED'
    THEN 3
    WHEN 'LATE'
    THEN 4
    WHEN 'UNVERIFIED'
    THEN 5
    ELSE 6
  END NULLS FIRST,
  source NULLS FIRST
