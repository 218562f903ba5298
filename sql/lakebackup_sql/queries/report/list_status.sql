-- The view `status`, the worst first; of the source `:source` alone where one is given.
SELECT *
FROM status
WHERE CAST(:source AS STRING) IS NULL OR source = :source
ORDER BY rank, source
