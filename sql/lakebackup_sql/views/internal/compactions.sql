-- The places of compactions: each ends where an earlier backup of its source does, at a place of its own, and holds
-- some topics only.
SELECT DISTINCT l.source, l.place
FROM raw_backups AS l
JOIN raw_backups AS e ON l.source = e.source AND l.end_ts = e.end_ts AND e.number < l.number
WHERE l.number = l.place
