-- The backup that a differential can continue: the newest complete one whose chain is whole.
SELECT * FROM backups
WHERE source = :source AND state = 'complete' AND intact
ORDER BY number DESC
LIMIT 1
