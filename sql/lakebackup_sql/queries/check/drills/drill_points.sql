-- How many backups of :source a restore can end at.
SELECT COUNT(DISTINCT p.backup_id) AS restore_points
FROM chain_points AS p
WHERE p.source = :source
