-- To which offsets the restores of the source :source on the cluster :cluster reset queues: the watermark of each is at
-- that offset, or after it.
SELECT restore_id, scope, epoch, region, base_position AS base
FROM raw_queue_restores
WHERE source = :source
  AND cluster = :cluster
ORDER BY at, restore_id, scope, CAST(region AS BIGINT)
