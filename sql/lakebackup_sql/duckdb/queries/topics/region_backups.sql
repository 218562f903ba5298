-- 650f13f37a76f5b6 backups raw_scopes
SELECT
  n.scope,
  n.epoch,
  n.in_chain,
  n.backup_id,
  n.regions
FROM (
  SELECT
    o.*,
    ROW_NUMBER() OVER (PARTITION BY o.scope, o.epoch, o.in_chain ORDER BY o.place DESC, o.number DESC) AS nth
  FROM (
    SELECT
      s.scope,
      s.epoch,
      s.backup_id,
      s.regions,
      b.place,
      b.number,
      b.base = $base AND b.link <= $link AND $link < b.unlinked AS in_chain
    FROM raw_scopes AS s
    JOIN backups AS b
      ON s.backup_id = b.backup_id
    WHERE
      b.source = $source AND s.source = $source AND b.state = 'complete' AND b.intact
  ) AS o
) AS n
WHERE
  n.nth = 1
ORDER BY
  n.scope NULLS FIRST,
  n.epoch NULLS FIRST,
  n.in_chain NULLS FIRST
