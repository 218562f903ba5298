-- 0a8feb1eb31b336a unusable
SELECT
  f.*,
  COUNT(*) OVER () AS all_rows
FROM (
  SELECT
    source,
    reason,
    fault_backup_id,
    fault_state,
    path,
    detail,
    COUNT(*) AS backups,
    MAX(faults) AS faults,
    MIN(end_ts) AS from_ts,
    MAX(end_ts) AS to_ts,
    MAX(found_at) AS found_at
  FROM unusable
  GROUP BY
    source,
    reason,
    fault_backup_id,
    fault_state,
    path,
    detail
) AS f
ORDER BY
  f.to_ts DESC,
  f.source NULLS FIRST,
  f.reason NULLS FIRST,
  f.fault_backup_id NULLS FIRST,
  f.path NULLS FIRST
LIMIT $most
