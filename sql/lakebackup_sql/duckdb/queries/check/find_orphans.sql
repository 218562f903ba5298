-- 5c00c1795224fbde orphans
SELECT
  o.destination,
  o.path,
  o.bytes
FROM orphans AS o
WHERE
  o.check_id = $check_id
  AND o.modified_ms < $before_ms
  AND (
    o.prune_id IS NULL
    OR NOT ARRAY_CONTAINS(STR_SPLIT_REGEX($unfinished, ','), o.prune_id)
  )
