-- 9498324fc70f1657 chain_points files needs
SELECT
  f.backup_id,
  f.scope,
  f.epoch,
  f.region,
  f.start_position,
  f.end_position,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.bytes,
  f.sha256,
  f.entries
FROM chain_points AS t
JOIN needs AS n
  ON t.backup_id = n.backup_id
JOIN files AS f
  ON n.needed_id = f.backup_id
  AND f.scope = t.scope
  AND f.epoch = t.epoch
  AND f.generation = t.generation
WHERE
  t.backup_id = $backup_id AND n.state = 'complete' AND f.role = 'data'
ORDER BY
  n.link NULLS FIRST,
  f.scope NULLS FIRST,
  TRY_CAST(f.region AS INT) NULLS FIRST,
  f.start_position NULLS FIRST,
  f.path NULLS FIRST
