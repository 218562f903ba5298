-- Of each partition, the offset of the first message of an open transaction (queue_unended).
SELECT scope, epoch, region, MIN(first_position) AS first_position
FROM queue_unended
GROUP BY scope, epoch, region
ORDER BY scope, CAST(region AS BIGINT)
