-- The backup that the next one can continue: the newest that can be restored, of level :level or below (null: any).
SELECT * FROM backups
WHERE source = :source AND state = 'complete' AND intact AND (CAST(:level AS INT) IS NULL OR level <= :level)
ORDER BY place DESC, number DESC
LIMIT 1
