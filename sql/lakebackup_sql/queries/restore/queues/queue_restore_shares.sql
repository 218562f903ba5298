-- What a restore task needs to know of each chosen file (relation selected: rows as of queue_restore_files), one
-- partition after another, in the order in which its messages were written.
SELECT
  f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format, f.codec, f.bytes,
  f.sha256, f.entries, f.link
FROM selected AS f
ORDER BY f.scope, CAST(f.region AS BIGINT), f.link, f.start_position, f.path
