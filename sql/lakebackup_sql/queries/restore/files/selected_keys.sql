-- The data keys of the encrypted files of topics, and of the encrypted objects of snapshots, among those of the relation
-- selected (destination, path), with the destinations that their own objects lie in.
SELECT DISTINCT f.destination, f.source, f.backup_id, f.key_id
FROM files AS f
JOIN selected AS s ON f.destination = s.destination AND f.path = s.path
WHERE f.key_id IS NOT NULL
  AND (f.format LIKE 'kafka-avro%' OR f.format IN ('file', 'pack'))
ORDER BY f.source, f.backup_id, f.key_id
