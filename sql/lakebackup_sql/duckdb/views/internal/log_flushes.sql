-- d2ad5409e9faeaf8 backups floors
SELECT
  b.*,
  f.low_position AS floor_ts
FROM backups AS b
LEFT JOIN floors AS f
  ON b.source = f.source AND f.scope = '-'
WHERE
  b.source_kind = 'changes' AND b.kind = 'log' AND b.state = 'complete'
