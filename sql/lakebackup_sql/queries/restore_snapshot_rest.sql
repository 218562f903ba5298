-- Rows of a person's SELECT (relation chosen: the key of snapshot_files) that are none of snapshot_files, and the first.
SELECT
  COUNT(*) AS files,
  MIN(CONCAT(c.scope, '/', c.region, '/', c.name)) AS name
FROM chosen AS c
LEFT ANTI JOIN snapshot_files AS f
  ON c.source = f.source
  AND c.scope = f.scope
  AND c.region = f.region
  AND c.name = f.name
  AND c.added_in = f.added_in
