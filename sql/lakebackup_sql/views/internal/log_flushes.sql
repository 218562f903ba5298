-- One row per complete backup of a change feed that holds a part of the log: what it holds, and where the log was cut.
-- floor_ts: everything up to this ts was deleted; null: nothing was
SELECT b.*, f.low_position AS floor_ts
FROM backups AS b
LEFT JOIN floors AS f ON b.source = f.source AND f.scope = '-'
WHERE b.source_kind = 'changes' AND b.kind = 'log' AND b.state = 'complete'
