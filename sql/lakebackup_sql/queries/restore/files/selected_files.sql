-- What a restore task needs to know of each chosen file (relation selected: rows as of restore_files), one partition
-- after another.
SELECT
  f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format, f.codec, f.bytes,
  f.sha256, f.entries
FROM selected AS f
ORDER BY f.scope, f.epoch, f.region, f.start_position, f.path
