-- One row per backup and version of the schema of an engine's messages: for which tids the version is valid. It is
-- valid from `from_tid` up to, but not including, `to_tid`, as far as this backup knew.
-- to_tid: tid from which the next version is valid; null: this version is still valid
-- change: what the version changed, as JSON; null: not recorded
-- definition: the version itself, as JSON; null: not recorded
SELECT
  s.source, s.backup_id, b.number, s.version, s.from_tid,
  LEAD(s.from_tid) OVER (PARTITION BY s.source, s.backup_id ORDER BY s.from_tid, s.version) AS to_tid,
  s.change, s.definition
FROM raw_queue_schemas AS s
JOIN raw_backups AS b ON s.backup_id = b.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
