-- 86561f7035736194 raw_backups raw_files raw_removals
WITH emptied AS (
  SELECT
    f.backup_id
  FROM raw_files AS f
  JOIN raw_backups AS b
    ON f.backup_id = b.backup_id
  SEMI JOIN raw_removals AS s
    ON f.backup_id = s.backup_id
  LEFT JOIN raw_removals AS r
    ON f.destination = r.destination AND f.path = r.path
  WHERE
    b.destination = $destination
    AND b.source_kind IN ('kafka', 'changes', 'queues')
    AND f.role <> 'meta'
  GROUP BY
    f.backup_id
  HAVING
    COUNT(*) = COUNT(
      CASE
        WHEN r."at" < $before
        AND NOT ARRAY_CONTAINS(STR_SPLIT_REGEX($incomplete, ','), r.prune_id)
        THEN 1
      END
    )
)
SELECT
  r.prune_id,
  r."at",
  r.source,
  r.destination,
  r.path,
  r.backup_id,
  r.scope,
  r.epoch,
  r.region,
  r.bytes,
  r.reason,
  r.files
FROM raw_removals AS r
ANTI JOIN emptied AS e
  ON r.backup_id = e.backup_id
UNION ALL
SELECT
  r.prune_id,
  r."at",
  r.source,
  r.destination,
  '-' AS path,
  r.backup_id,
  '-' AS scope,
  '-' AS epoch,
  '-' AS region,
  CAST(SUM(r.bytes) AS BIGINT) AS bytes,
  r.reason,
  CAST(SUM(COALESCE(r.files, 1)) AS BIGINT) AS files
FROM raw_removals AS r
SEMI JOIN emptied AS e
  ON r.backup_id = e.backup_id
GROUP BY
  r.prune_id,
  r."at",
  r.source,
  r.destination,
  r.backup_id,
  r.reason
