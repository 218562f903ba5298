-- The tablets that the files of a restore (relation selected) are of.
SELECT DISTINCT s.region
FROM selected AS s
ORDER BY s.region
