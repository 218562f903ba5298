-- 9ec1438cb71d8643 backups raw_positions raw_scopes
SELECT
  scope,
  epoch,
  region,
  end_position,
  end_ts,
  complete_ts,
  open_since,
  number,
  backup_id,
  leader_epoch,
  in_chain
FROM (
  SELECT
    o.*,
    ROW_NUMBER() OVER (
      PARTITION BY o.scope, o.epoch, o.region, o.in_chain
      ORDER BY o.place DESC, o.number DESC
    ) AS nth
  FROM (
    SELECT
      p.scope,
      p.epoch,
      p.region,
      p.end_position,
      b.end_ts,
      s.complete_ts,
      p.open_since,
      b.number,
      b.place,
      b.backup_id,
      p.leader_epoch,
      b.base = $base AND b.link <= $link AND $link < b.unlinked AS in_chain
    FROM raw_positions AS p
    JOIN backups AS b
      ON p.backup_id = b.backup_id
    LEFT JOIN raw_scopes AS s
      ON p.backup_id = s.backup_id AND p.scope = s.scope AND p.epoch = s.epoch
    WHERE
      b.source = $source
      AND p.source = $source
      AND b.state = 'complete'
      AND b.chained
      AND (
        TRY_CAST($backups AS TEXT) IS NULL
        OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backups, ','), p.backup_id)
      )
  ) AS o
) AS n
WHERE
  n.nth = 1
ORDER BY
  scope NULLS FIRST,
  epoch NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST,
  number NULLS FIRST
