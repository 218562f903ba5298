-- The destinations that hold files of the relation selected.
SELECT DISTINCT s.destination
FROM selected AS s
ORDER BY s.destination
