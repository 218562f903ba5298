-- 6a1a91991ae5165a group_commits groups
SELECT
  source,
  group_id,
  scope,
  epoch,
  region,
  position,
  metadata,
  leader_epoch,
  ts,
  CASE WHEN ts >= 0 THEN TIMESTAMP_MILLIS(ts) END AS time,
  seen,
  backup_id,
  log_position
FROM (
  SELECT
    c.source,
    c.group_id,
    c.scope,
    c.epoch,
    c.region,
    c.position,
    c.metadata,
    c.leader_epoch,
    COALESCE(c.commit_ts, c.log_ts) AS ts,
    'log' AS seen,
    c.backup_id,
    c.log_position,
    ROW_NUMBER() OVER (
      PARTITION BY c.source, c.log_epoch, c.log_region, c.log_position
      ORDER BY c.backup_id NULLS FIRST
    ) AS copy
  FROM group_commits AS c
  WHERE
    c.kind = 'offset' AND c.problem IS NULL
  UNION ALL
  SELECT
    g.source,
    g.group_id,
    g.scope,
    g.epoch,
    g.region,
    g.position,
    g.metadata,
    g.leader_epoch,
    g.ts,
    'backup' AS seen,
    g.backup_id,
    TRY_CAST(NULL AS BIGINT) AS log_position,
    1 AS copy
  FROM groups AS g
  WHERE
    NOT g.position IS NULL
) AS known
WHERE
  copy = 1
