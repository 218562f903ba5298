-- One row per source and place of a compaction: which places in a chain are compactions. A compaction has a place of
-- its own, ends at the same instant as an earlier backup of its source, and holds only some of the topics.
SELECT DISTINCT l.source, l.place
FROM raw_backups AS l
JOIN raw_backups AS e ON l.source = e.source AND l.end_ts = e.end_ts AND e.number < l.number
WHERE l.number = l.place
