-- dec018db0b13120a backups raw_scopes
SELECT
  s.scope,
  s.epoch,
  b.in_chain,
  ARG_MAX(s.backup_id, b.nth) AS backup_id,
  ARG_MAX(s.regions, b.nth) AS regions
FROM raw_scopes AS s
JOIN (
  SELECT
    o.backup_id,
    o.base = $base AND o.link <= $link AND $link < o.unlinked AS in_chain,
    ROW_NUMBER() OVER (PARTITION BY o.source ORDER BY o.place NULLS FIRST, o.number NULLS FIRST) AS nth
  FROM backups AS o
  WHERE
    o.source = $source AND o.state = 'complete' AND o.chained
) AS b
  ON s.backup_id = b.backup_id
WHERE
  s.source = $source
GROUP BY
  s.scope,
  s.epoch,
  b.in_chain
ORDER BY
  s.scope NULLS FIRST,
  s.epoch NULLS FIRST,
  b.in_chain NULLS FIRST
