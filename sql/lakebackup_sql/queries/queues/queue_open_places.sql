-- Of each partition, where the first message of a transaction stands that is open (queue_unended).
SELECT scope, epoch, region, MIN(first_position) AS first_position
FROM queue_unended
GROUP BY scope, epoch, region
ORDER BY scope, CAST(region AS BIGINT)
