-- Files of snapshots to restore: those of backup :number of :source, of the tables :scopes and tablets :regions alone
-- where they are given; or, without :number, those that a person's SELECT chose (relation snapshot_chosen: the key of
-- snapshot_files). They are in the order of their objects, each as the files' bytes lie in it.
-- target: where a file goes, below the folder, in the form :layout: tree (table/tablet/name), yugabyte
--   (table-…/tablet-…/name) or flat (name); files of no table, or of a table that is not parted, have one folder less
SELECT
  f.source, f.scope, f.region, f.added_in, f.bytes, f.mtime_ms, f.mode, f.links, f.sha256, f.destination, f.path,
  f.position, f.codec, f.stored_bytes, f.key_id, f.stored,
  CONCAT(
    CASE
      WHEN f.scope = '-' OR :layout = 'flat' THEN ''
      WHEN :layout = 'yugabyte' THEN CONCAT('table-', f.scope, '/')
      ELSE CONCAT(f.scope, '/')
    END,
    CASE
      WHEN f.region = '-' OR :layout = 'flat' THEN ''
      WHEN :layout = 'yugabyte' THEN CONCAT('tablet-', f.region, '/')
      ELSE CONCAT(f.region, '/')
    END,
    f.name
  ) AS target
FROM snapshot_files AS f
WHERE (
  f.source = :source
  AND f.added_in <= :number
  AND (f.gone_in IS NULL OR f.gone_in > :number)
  AND (CAST(:scopes AS ARRAY<STRING>) IS NULL OR ARRAY_CONTAINS(CAST(:scopes AS ARRAY<STRING>), f.scope))
  AND (CAST(:regions AS ARRAY<STRING>) IS NULL OR ARRAY_CONTAINS(CAST(:regions AS ARRAY<STRING>), f.region))
)
OR EXISTS (
  SELECT 1
  FROM snapshot_chosen AS c
  WHERE c.source = f.source
    AND c.scope = f.scope
    AND c.region = f.region
    AND c.name = f.name
    AND c.added_in = f.added_in
)
ORDER BY f.destination, f.path, f.position, f.bytes, target
