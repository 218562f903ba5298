-- Folders of a restore (relation snapshot_selected: its files), each before what is in it: those that backup :number of
-- :source has, of the tables :scopes and tablets :regions alone where they are given; or, without :number, the newest
-- row of each folder up to the newest of the files.
-- target: where a folder is, see restore_snapshot_files; that of a tablet's own folder ends in /, or is empty
WITH folders AS (
  SELECT
    f.mode, f.mtime_ms, f.added_in,
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
  FROM snapshot_folders AS f
  WHERE f.source = :source
    AND f.added_in <= COALESCE(:number, (SELECT MAX(s.added_in) FROM snapshot_selected AS s))
    AND (:number IS NULL OR f.gone_in IS NULL OR f.gone_in > :number)
    AND (CAST(:scopes AS ARRAY<STRING>) IS NULL OR ARRAY_CONTAINS(CAST(:scopes AS ARRAY<STRING>), f.scope))
    AND (CAST(:regions AS ARRAY<STRING>) IS NULL OR ARRAY_CONTAINS(CAST(:regions AS ARRAY<STRING>), f.region))
)
SELECT d.target, d.mode, d.mtime_ms
FROM (
  SELECT f.*, ROW_NUMBER() OVER (PARTITION BY f.target ORDER BY f.added_in DESC) AS place
  FROM folders AS f
) AS d
WHERE d.place = 1
ORDER BY REPLACE(d.target, '/', CHR(0))
