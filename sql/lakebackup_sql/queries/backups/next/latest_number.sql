-- The highest number of a source; those of deleted and unconfirmed backups are not used again, nor those of departures
-- recorded with a backup that was never committed (departed_number).
SELECT MAX(number) AS number
FROM backups
WHERE source = :source
