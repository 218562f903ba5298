-- b2a8334376251d82 raw_backups raw_queue_schemas
SELECT
  s.source,
  s.backup_id,
  b.number,
  s.version,
  s.from_tid,
  LEAD(s.from_tid) OVER (
    PARTITION BY s.source, s.backup_id
    ORDER BY s.from_tid NULLS FIRST, s.version NULLS FIRST
  ) AS to_tid,
  s.change,
  s.definition
FROM raw_queue_schemas AS s
JOIN raw_backups AS b
  ON s.backup_id = b.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')
