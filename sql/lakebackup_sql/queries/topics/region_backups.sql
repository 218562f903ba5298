-- The backups that region_ends finds the ends of a topic's partitions in: the last that holds it of those that the
-- backup :link of the chain on :base needs (in_chain), and the last of all others. regions: how many partitions it has.
SELECT
  s.scope, s.epoch, b.in_chain,
  MAX_BY(s.backup_id, b.nth) AS backup_id,
  MAX_BY(s.regions, b.nth) AS regions
FROM raw_scopes AS s
JOIN (
  SELECT
    o.backup_id, o.base = :base AND o.link <= :link AND :link < o.unlinked AS in_chain,
    ROW_NUMBER() OVER (PARTITION BY o.source ORDER BY o.place, o.number) AS nth
  FROM backups AS o
  WHERE o.source = :source AND o.state = 'complete' AND o.chained
) AS b ON s.backup_id = b.backup_id
WHERE s.source = :source
GROUP BY s.scope, s.epoch, b.in_chain
ORDER BY s.scope, s.epoch, b.in_chain
