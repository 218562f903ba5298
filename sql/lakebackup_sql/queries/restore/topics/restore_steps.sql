-- The complete backups from which the state at backup :backup_id can be assembled: each leads from its parent's place
-- to its own. used: true: a restore of that backup reads it.
SELECT
  b.backup_id, b.kind, b.level, b.place, b.parent_place, b.end_ts,
  b.base = t.base AND b.link <= t.link AND t.link < b.unlinked AS used
FROM backups AS b
JOIN backups AS t ON b.source = t.source
WHERE t.backup_id = :backup_id
  AND b.state = 'complete'
  AND b.place <= t.place
ORDER BY b.place, b.number
