-- Files of a snapshot whose SHA-256 alone differs from that of what is stored (`snapshot_compared` has the rows of
-- snapshot_changes): the first 20.
SELECT s.folder, s.name
FROM snapshot_compared AS s
WHERE s.change = 'unlike'
ORDER BY s.scope, s.region, s.name
LIMIT 20
