-- What makes backups unusable, at most :most causes, newest first: how many backups each one makes unusable
-- (`unusable`), and the first file at fault; `all_rows`: how many causes there are.
SELECT
  f.*,
  COUNT(*) OVER () AS all_rows
FROM (
  SELECT
    source, reason, fault_backup_id, fault_state, path, detail,
    COUNT(*) AS backups,
    MAX(faults) AS faults,
    MIN(end_ts) AS from_ts,
    MAX(end_ts) AS to_ts,
    MAX(found_at) AS found_at
  FROM unusable
  GROUP BY source, reason, fault_backup_id, fault_state, path, detail
) AS f
ORDER BY f.to_ts DESC, f.source, f.reason, f.fault_backup_id, f.path
LIMIT :most
