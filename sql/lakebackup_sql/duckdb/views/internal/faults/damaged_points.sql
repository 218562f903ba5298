-- d9f68c81a5d66e1b backups faults faulty_files own_kinds raw_backups scopes snapshot_files
SELECT DISTINCT
  b.backup_id,
  s.scope
FROM faulty_files AS f
JOIN backups AS n
  ON f.backup_id = n.backup_id
JOIN scopes AS s
  ON n.source = s.source
  AND f.scope = s.scope
  AND f.epoch = s.epoch
  AND f.generation = s.generation
JOIN backups AS b
  ON s.backup_id = b.backup_id
  AND n.base = b.base
  AND n.link <= b.link
  AND b.link < n.unlinked
WHERE
  NOT n.source_kind IN ('snapshot', 'changes', 'queues')
UNION
SELECT
  b.backup_id,
  s.scope
FROM snapshot_files AS s
JOIN faults AS c
  ON s.destination = c.destination AND s.path = c.path AND s.stored
JOIN raw_backups AS b
  ON s.source = b.source
  AND s.added_in <= b.number
  AND COALESCE(b.number < s.gone_in, TRUE)
UNION
SELECT
  b.backup_id,
  TRY_CAST(NULL AS TEXT) AS scope
FROM backups AS b
ANTI JOIN (
  SELECT
    source_kind
  FROM own_kinds
  WHERE
    NOT source_kind IN ('changes', 'queues')
) AS k
  ON b.source_kind = k.source_kind
WHERE
  b.chained AND NOT b.intact
