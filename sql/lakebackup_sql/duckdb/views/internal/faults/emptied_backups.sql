-- e2cdcaabe7fd4f8d raw_removals
SELECT
  backup_id,
  MAX(prune_id) AS prune_id
FROM raw_removals
WHERE
  NOT files IS NULL
GROUP BY
  backup_id
