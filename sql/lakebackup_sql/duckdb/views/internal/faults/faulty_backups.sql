-- bd56a7fdda62f8f6 emptied_backups faults raw_backups raw_removals snapshot_files
SELECT
  c.backup_id
FROM faults AS c
JOIN raw_backups AS b
  ON c.backup_id = b.backup_id
ANTI JOIN raw_removals AS r
  ON c.destination = r.destination AND c.path = r.path
ANTI JOIN emptied_backups AS e
  ON c.backup_id = e.backup_id
WHERE
  c.mode <> 'keys'
  AND b.source_kind <> 'snapshot'
  AND SPLIT_PART(c.path, '/', 2) <> 'backups'
UNION
SELECT
  b.backup_id
FROM snapshot_files AS s
JOIN faults AS c
  ON s.destination = c.destination AND s.path = c.path AND s.stored
JOIN raw_backups AS b
  ON s.source = b.source
  AND s.added_in <= b.number
  AND COALESCE(b.number < s.gone_in, TRUE)
