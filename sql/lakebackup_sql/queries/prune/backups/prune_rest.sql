-- How many backups of a source can be restored and are not from the future, without those of the relation leaving.
SELECT COUNT(*) AS backups
FROM backups AS b
LEFT ANTI JOIN leaving AS v ON b.backup_id = v.backup_id
LEFT ANTI JOIN future_backups AS f ON b.backup_id = f.backup_id
WHERE b.source = :source
  AND b.state = 'complete'
  AND b.intact
