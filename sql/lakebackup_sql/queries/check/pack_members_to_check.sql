-- The files that are compressed, encrypted or lie in packs, object by object, those of the backups whose ids are in
-- :backup_ids (separated by commas; empty: all). Those without bytes are left out: each has the place of the next; and
-- those whose size or SHA-256 is not known.
SELECT DISTINCT f.backup_id, f.destination, f.path, s.position, s.codec, s.stored_bytes, s.key_id, s.bytes, s.sha256
FROM files AS f
JOIN snapshot_files AS s ON f.destination = s.destination AND f.path = s.path
LEFT JOIN (
  SELECT source, number FROM backups WHERE ARRAY_CONTAINS(SPLIT(:backup_ids, ','), backup_id)
) AS h ON s.source = h.source AND s.added_in <= h.number AND COALESCE(h.number < s.gone_in, TRUE)
WHERE (f.format = 'pack' OR s.codec <> 'none' OR s.key_id IS NOT NULL)
  AND s.bytes > 0
  AND s.sha256 IS NOT NULL
  AND (:backup_ids = '' OR h.number IS NOT NULL)
ORDER BY f.destination, f.path, s.position
