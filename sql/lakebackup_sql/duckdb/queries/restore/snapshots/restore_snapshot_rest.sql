-- 814836a4abcdd570 snapshot_chosen snapshot_files
SELECT
  COUNT(*) AS files,
  MIN(c.scope || '/' || c.region || '/' || c.name) AS name
FROM snapshot_chosen AS c
ANTI JOIN snapshot_files AS f
  ON c.source = f.source
  AND c.scope = f.scope
  AND c.region = f.region
  AND c.name = f.name
  AND c.added_in = f.added_in
