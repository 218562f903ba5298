-- Versions of the schema of an engine's messages, as each backup found them: valid from from_tid up to before to_tid.
-- to_tid: tid from which another version is valid; null: it is valid still
-- change: what was changed, as JSON; null: not recorded
-- definition: the version itself, as JSON; null: not recorded
SELECT
  s.source, s.backup_id, b.number, s.version, s.from_tid,
  LEAD(s.from_tid) OVER (PARTITION BY s.source, s.backup_id ORDER BY s.from_tid, s.version) AS to_tid,
  s.change, s.definition
FROM raw_queue_schemas AS s
JOIN raw_backups AS b ON s.backup_id = b.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
