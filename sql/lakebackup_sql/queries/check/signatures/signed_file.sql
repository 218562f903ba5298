-- The backup that stored the file at :path in this repository, whatever became of it.
SELECT f.source, f.backup_id
FROM raw_files AS f
WHERE f.path = :path
ORDER BY f.added_in DESC
LIMIT 1
