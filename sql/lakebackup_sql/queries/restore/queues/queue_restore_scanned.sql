-- The files chosen (relation selected: rows as of queue_restore_files) of backups behind link :link: what there is to
-- read to know which transactions are open at a tid between two backups' ends.
SELECT
  f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format, f.codec, f.bytes,
  f.sha256, f.entries, f.link
FROM selected AS f
WHERE f.link > CAST(:link AS BIGINT)
ORDER BY f.scope, f.region, f.link, f.start_position, f.path
