-- The topics of the newest backup of a source that can be restored; when none can, of the newest in any state. A
-- compaction holds some topics only. A merge may leave topics out: of backups at the same place, the first has read the
-- source.
SELECT s.scope, s.epoch
FROM raw_scopes AS s
JOIN (
  SELECT b.backup_id
  FROM (
    SELECT
      c.backup_id, c.place, c.number,
      MAX(CASE WHEN c.state = 'complete' AND c.intact THEN 1 ELSE 0 END) OVER (PARTITION BY c.place) AS usable
    FROM backups AS c
    LEFT ANTI JOIN compactions AS k ON c.source = k.source AND c.place = k.place
    WHERE c.source = :source
  ) AS b
  ORDER BY b.usable DESC, b.place DESC, b.number
  LIMIT 1
) AS n ON s.backup_id = n.backup_id
ORDER BY s.scope
