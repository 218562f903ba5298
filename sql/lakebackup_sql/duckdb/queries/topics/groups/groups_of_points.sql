-- 2f2e08a9d51d821c backups chain_points groups
SELECT
  g.group_id,
  g.scope,
  g.epoch,
  g.region,
  g.position,
  g.metadata,
  g.ts,
  'backup' AS seen
FROM groups AS g
JOIN chain_points AS t
  ON g.backup_id = t.backup_id AND g.scope = t.scope AND g.epoch = t.epoch
WHERE
  g.source = $source AND t.newest
UNION ALL
SELECT
  g.group_id,
  g.scope,
  g.epoch,
  g.region,
  g.position,
  g.metadata,
  g.ts,
  'backup' AS seen
FROM groups AS g
JOIN (
  SELECT
    MAX(number) AS number
  FROM backups
  WHERE
    source = $source AND state = 'complete'
) AS n
  ON TRUE
JOIN backups AS b
  ON g.backup_id = b.backup_id AND b.number = n.number
WHERE
  g.source = $source AND g.epoch IS NULL AND NOT g.position IS NULL
ORDER BY
  group_id NULLS FIRST,
  scope NULLS FIRST,
  region NULLS FIRST,
  epoch NULLS FIRST
