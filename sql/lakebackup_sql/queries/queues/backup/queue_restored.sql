-- Behind which offsets of each partition the restore :restore_id of an engine left its messages.
SELECT scope, epoch, region, base_position, end_position
FROM raw_queue_restores
WHERE restore_id = :restore_id
ORDER BY scope, CAST(region AS BIGINT)
