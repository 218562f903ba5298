-- The data keys of the encrypted files among those of the relation selected (destination, path), with the destinations
-- that their own objects lie in. A log file whose path does not end in .enc has a key of a key file.
SELECT DISTINCT f.destination, f.source, f.backup_id, f.key_id
FROM files AS f
JOIN selected AS s ON f.destination = s.destination AND f.path = s.path
WHERE f.key_id IS NOT NULL AND (f.format <> 'log-arrow-1' OR f.path LIKE '%.enc')
ORDER BY f.source, f.backup_id, f.key_id
