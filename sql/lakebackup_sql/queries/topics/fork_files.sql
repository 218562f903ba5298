-- For each partition and position of the relation `suspected`: the last data file before it.
SELECT place, scope, epoch, region, position, leader_epoch, destination, path, bytes, end_position
FROM (
  SELECT
    s.place, s.scope, s.epoch, s.region, s.position, s.leader_epoch, f.destination, f.path, f.bytes,
    f.end_position,
    ROW_NUMBER() OVER (
      PARTITION BY s.scope, s.epoch, s.region, s.position ORDER BY f.end_position DESC, f.added_in DESC
    ) AS nth
  FROM files AS f
  JOIN suspected AS s ON s.scope = f.scope AND s.epoch = f.epoch AND s.region = f.region AND f.end_position <= s.position
  JOIN raw_backups AS b ON f.backup_id = b.backup_id
  WHERE f.source = :source AND f.role = 'data' AND b.state = 'complete'
) AS n
WHERE nth = 1
ORDER BY scope, epoch, region, position
