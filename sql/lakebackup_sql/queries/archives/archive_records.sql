-- The data files that restoring the topics of the backup :backup_id needs, backup after backup and topic after topic,
-- with the backup that wrote each.
SELECT
  f.backup_id, f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format,
  f.codec, f.bytes, f.sha256, f.entries
FROM chain_points AS t
JOIN needs AS n ON t.backup_id = n.backup_id
JOIN files AS f ON n.needed_id = f.backup_id AND f.scope = t.scope AND f.epoch = t.epoch AND f.generation = t.generation
WHERE t.backup_id = :backup_id
  AND n.state = 'complete'
  AND f.role = 'data'
ORDER BY n.link, f.scope, CAST(f.region AS INT), f.start_position, f.path
