-- The view `status`, the worst first; of the source `:source` alone where one is given.
SELECT *
FROM status
WHERE CAST(:source AS STRING) IS NULL OR source = :source
ORDER BY
  CASE status
    WHEN 'DAMAGED' THEN 1 WHEN 'UNPROTECTED' THEN 2 WHEN 'FAILED' THEN 3 WHEN 'LATE' THEN 4 WHEN 'UNVERIFIED' THEN 5 ELSE 6
  END,
  source
