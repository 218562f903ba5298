-- One row per log task: which state it should be in, and since when.
-- time: at, in UTC
SELECT t.source, t.at, t.actor, t.state, t.settings, t.detail, timestamp_micros(t.at) AS time
FROM (SELECT r.*, ROW_NUMBER() OVER (PARTITION BY r.source ORDER BY r.at DESC) AS nth FROM raw_log_tasks AS r) AS t
WHERE t.nth = 1
