-- Data files that were missing, changed or damaged when verify last looked at them.
-- found_at: when verify found it, microseconds since 1970 UTC
SELECT f.*, c.outcome, c.detail, c.check_id, c.at AS found_at
FROM files AS f
JOIN faults AS c ON c.destination = f.destination AND c.path = f.path
