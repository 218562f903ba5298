-- Rows of a person's SELECT (relation snapshot_chosen: the key of snapshot_files) that snapshot_files has not, and the
-- first of them.
SELECT
  COUNT(*) AS files,
  MIN(CONCAT(c.scope, '/', c.region, '/', c.name)) AS name
FROM snapshot_chosen AS c
LEFT ANTI JOIN snapshot_files AS f
  ON c.source = f.source AND c.scope = f.scope AND c.region = f.region AND c.name = f.name AND c.added_in = f.added_in
