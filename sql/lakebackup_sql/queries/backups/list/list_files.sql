-- The data files that a backup wrote.
SELECT * FROM files
WHERE backup_id = :backup_id
ORDER BY scope, epoch, CAST(region AS BIGINT), start_position
