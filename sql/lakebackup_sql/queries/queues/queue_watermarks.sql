-- Where the restores of the source :source on the cluster :cluster put queues back: the watermark of each stands there,
-- or after.
SELECT restore_id, scope, epoch, region, base_position AS base
FROM raw_queue_restores
WHERE source = :source
  AND cluster = :cluster
ORDER BY at, restore_id, scope, CAST(region AS BIGINT)
