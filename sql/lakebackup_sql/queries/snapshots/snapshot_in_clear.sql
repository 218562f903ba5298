-- How many files of the newest backup of a source of snapshots are not encrypted.
SELECT COUNT(*) AS files
FROM snapshot_files AS f
WHERE f.source = :source
  AND f.gone_in IS NULL
  AND f.key_id IS NULL
