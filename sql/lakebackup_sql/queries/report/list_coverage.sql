-- The view `coverage` in the order of time; of the source `:source` and of the topic `:topic` alone where they are given.
SELECT *
FROM coverage
WHERE (CAST(:source AS STRING) IS NULL OR source = :source) AND (CAST(:topic AS STRING) IS NULL OR scope = :topic)
ORDER BY source, scope, epoch, region, to_ts
