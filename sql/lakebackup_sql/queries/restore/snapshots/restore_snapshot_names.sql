-- Where the files of a restore (relation snapshot_selected) go: a folder's own files right after a file of its name.
-- :fold: upper and lower case are one, as in some file systems.
SELECT s.target
FROM snapshot_selected AS s
ORDER BY
  CASE WHEN :fold THEN LOWER(REPLACE(s.target, '/', CHR(0))) ELSE REPLACE(s.target, '/', CHR(0)) END,
  s.target
