-- The backups that region_ends finds the ends of a topic's partitions in: the last that holds it of those that the
-- backup :link of the chain on :base needs (in_chain), and the last of all others. regions: how many partitions it has.
SELECT n.scope, n.epoch, n.in_chain, n.backup_id, n.regions
FROM (
  SELECT
    o.*,
    ROW_NUMBER() OVER (PARTITION BY o.scope, o.epoch, o.in_chain ORDER BY o.place DESC, o.number DESC) AS nth
  FROM (
    SELECT
      s.scope, s.epoch, s.backup_id, s.regions, b.place, b.number,
      b.base = :base AND b.link <= :link AND :link < b.unlinked AS in_chain
    FROM raw_scopes AS s
    JOIN backups AS b ON s.backup_id = b.backup_id
    WHERE b.source = :source AND s.source = :source AND b.state = 'complete' AND b.intact
  ) AS o
) AS n
WHERE n.nth = 1
ORDER BY n.scope, n.epoch, n.in_chain
