-- 7bc7f62614910f49 raw_group_commits raw_schemas
SELECT
  scope,
  records,
  region,
  position,
  problem
FROM (
  SELECT
    d.*,
    COUNT(*) OVER (PARTITION BY d.scope) AS records,
    ROW_NUMBER() OVER (
      PARTITION BY d.scope
      ORDER BY TRY_CAST(d.region AS BIGINT) NULLS FIRST, d.position NULLS FIRST
    ) AS number
  FROM (
    SELECT
      '__consumer_offsets' AS scope,
      log_region AS region,
      log_position AS position,
      problem
    FROM raw_group_commits
    WHERE
      backup_id = $backup_id AND NOT problem IS NULL
    UNION ALL
    SELECT
      scope,
      log_region AS region,
      log_position AS position,
      problem
    FROM raw_schemas
    WHERE
      backup_id = $backup_id AND NOT problem IS NULL
  ) AS d
) AS numbered
WHERE
  number = 1
ORDER BY
  scope NULLS FIRST
