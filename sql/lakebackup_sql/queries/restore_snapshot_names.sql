-- Where the files of a restore (relation snapshot_selected) go: a folder's own files right behind a file of its name.
-- :fold: upper and lower case are one, as in some file systems.
SELECT
  s.target, s.added_in, s.destination, s.path, s.position, s.bytes, s.mtime_ms, s.mode, s.sha256
FROM snapshot_selected AS s
ORDER BY
  CASE WHEN :fold THEN LOWER(REPLACE(s.target, '/', CHR(0))) ELSE REPLACE(s.target, '/', CHR(0)) END,
  s.target,
  s.added_in
