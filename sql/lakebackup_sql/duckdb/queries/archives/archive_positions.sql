-- d96aaf3f20089901 needs raw_positions
SELECT
  p.backup_id,
  p.scope,
  p.region,
  p.start_position,
  p.end_position
FROM needs AS n
JOIN raw_positions AS p
  ON n.needed_id = p.backup_id
WHERE
  n.backup_id = $backup_id AND n.state = 'complete'
ORDER BY
  n.link NULLS FIRST,
  p.scope NULLS FIRST,
  TRY_CAST(p.region AS INT) NULLS FIRST
