-- The sources that have a restorable backup.
SELECT DISTINCT t.source
FROM restore_points AS t
ORDER BY t.source
