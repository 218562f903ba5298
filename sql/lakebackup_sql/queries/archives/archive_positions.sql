-- What each backup that restoring the backup :backup_id needs holds of each region.
SELECT p.backup_id, b.link, p.scope, p.region, p.start_position, p.end_position
FROM backups AS t
JOIN backups AS b
  ON b.source = t.source
  AND b.base = t.base
  AND b.link <= t.link
  AND t.link < b.unlinked
JOIN raw_positions AS p
  ON b.backup_id = p.backup_id
WHERE t.backup_id = :backup_id
  AND b.state = 'complete'
ORDER BY b.link, p.scope, CAST(p.region AS INT)
