-- The topics of :source whose records were read as a schema registry's, with how many records that is.
SELECT scope, count(DISTINCT log_position) AS records
FROM schemas
WHERE source = :source
GROUP BY scope
ORDER BY scope
