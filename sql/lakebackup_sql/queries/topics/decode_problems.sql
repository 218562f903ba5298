-- How many records of a backup could not be decoded, for each topic, with the first of them. The backup need not be
-- committed.
SELECT scope, records, region, position, problem
FROM (
  SELECT
    d.*,
    count(*) OVER (PARTITION BY d.scope) AS records,
    row_number() OVER (PARTITION BY d.scope ORDER BY CAST(d.region AS BIGINT), d.position) AS number
  FROM (
    SELECT '__consumer_offsets' AS scope, log_region AS region, log_position AS position, problem
    FROM raw_group_commits
    WHERE backup_id = :backup_id AND problem IS NOT NULL
    UNION ALL
    SELECT scope, log_region AS region, log_position AS position, problem
    FROM raw_schemas
    WHERE backup_id = :backup_id AND problem IS NOT NULL
  ) AS d
) AS numbered
WHERE number = 1
ORDER BY scope
