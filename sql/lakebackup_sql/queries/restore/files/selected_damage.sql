-- Files chosen for a restore (relation selected) that were not whole when they were last checked.
SELECT f.scope, f.region, c.path, c.outcome, c.at
FROM selected AS f
JOIN faults AS c ON c.destination = f.destination AND c.path = f.path
ORDER BY f.scope, f.region, c.path
LIMIT 100
