-- One row per data file that was missing, changed or damaged when verify last checked it: what is wrong with it.
-- found_at: when verify reported it, microseconds since 1970 UTC
SELECT f.*, c.outcome, c.detail, c.check_id, c.at AS found_at
FROM files AS f
JOIN faults AS c ON c.destination = f.destination AND c.path = f.path
