-- Restores that are complete.
SELECT restore_id
FROM restores
WHERE scope IS NULL AND state = 'complete'
