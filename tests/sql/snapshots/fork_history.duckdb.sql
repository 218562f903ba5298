SELECT
  b.place,
  p.scope,
  p.epoch,
  p.region,
  p.end_position AS position,
  p.leader_epoch
FROM raw_positions AS p
JOIN backups AS b
  ON p.backup_id = b.backup_id
JOIN suspected AS s
  ON p.scope = s.scope AND p.epoch = s.epoch AND p.region = s.region
WHERE
  p.source = $source
  AND b.source = $source
  AND b.state = 'complete'
  AND b.intact
  AND b.place <= s.place
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST,
  p.region NULLS FIRST,
  b.place NULLS FIRST,
  b.number NULLS FIRST
