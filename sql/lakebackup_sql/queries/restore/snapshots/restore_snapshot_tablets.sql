-- The tablets that the files of a restore (relation snapshot_selected) are of.
SELECT DISTINCT s.region
FROM snapshot_selected AS s
ORDER BY s.region
