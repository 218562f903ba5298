-- The view `status`, the worst first; of the source `:source` alone where one is given.
SELECT *
FROM status
WHERE CAST(:source AS STRING) IS NULL OR source = :source
ORDER BY
  CASE status WHEN 'DAMAGED' THEN 1 WHEN 'UNPROTECTED' THEN 2 WHEN 'LATE' THEN 3 WHEN 'UNVERIFIED' THEN 4 ELSE 5 END,
  source
