-- One row per backup with a fault: which backups have a file of their own that verify found missing, changed or
-- damaged. A snapshot's backup is at fault if it has a file in such an object, whichever backup wrote the object. The
-- objects that lie beside a backup for rebuilding a lost catalog do not count.
SELECT c.backup_id
FROM faults AS c
JOIN raw_backups AS b ON c.backup_id = b.backup_id
LEFT ANTI JOIN raw_removals AS r ON c.destination = r.destination AND c.path = r.path
LEFT ANTI JOIN emptied_backups AS e ON c.backup_id = e.backup_id
WHERE c.mode <> 'keys'
  AND b.source_kind <> 'snapshot'
  AND split_part(c.path, '/', 2) <> 'backups'
UNION
SELECT b.backup_id
FROM snapshot_files AS s
JOIN faults AS c ON s.destination = c.destination AND s.path = c.path AND s.stored
JOIN raw_backups AS b ON s.source = b.source AND s.added_in <= b.number AND COALESCE(b.number < s.gone_in, TRUE)
