-- Restores of a source that did not finish, the oldest first.
SELECT restore_id, state, at, detail
FROM restores
WHERE source = :source AND scope IS NULL AND state IN ('running', 'failed')
ORDER BY at
