-- The offsets of the consumer groups of :source at the instant :ts (ms; null: at the end of what is known): the last
-- committed offset of each partition. One that was erased by then is left out, unless :ignore_erased is true: then the
-- last offset before the erasure counts, such as before its topic was deleted.
SELECT group_id, scope, epoch, region, position, metadata, leader_epoch, ts, seen, backup_id
FROM (
  SELECT
    o.*,
    row_number() OVER (
      PARTITION BY o.group_id, o.scope, o.region ORDER BY o.ts DESC, o.seen DESC, o.log_position DESC
    ) AS newest
  FROM group_offsets AS o
  WHERE o.source = :source
    AND (CAST(:ts AS BIGINT) IS NULL OR o.ts <= CAST(:ts AS BIGINT))
    AND (o.position IS NOT NULL OR NOT :ignore_erased)
) AS numbered
WHERE newest = 1 AND position IS NOT NULL
ORDER BY group_id, scope, CAST(region AS BIGINT)
