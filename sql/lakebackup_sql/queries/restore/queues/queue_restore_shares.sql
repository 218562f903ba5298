-- What a task needs to know of each chosen file (relation selected: rows as of queue_restore_files), one partition
-- after another, in the order in which its messages were written: of those after link :link of the chain (null: all).
SELECT
  f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format, f.codec, f.bytes,
  f.sha256, f.entries, f.link
FROM selected AS f
WHERE CAST(:link AS BIGINT) IS NULL OR f.link > CAST(:link AS BIGINT)
ORDER BY f.scope, CAST(f.region AS BIGINT), f.link, f.start_position, f.path
