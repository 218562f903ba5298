-- 2437e13914bdfca2 unusable_backups
SELECT
  u.source,
  u.backup_id,
  u.number,
  u.kind,
  u.state,
  u.base,
  COALESCE(EPOCH_MS(u.end_time), u.end_ts) AS end_ts,
  u.reason,
  u.fault_backup_id,
  u.fault_state,
  u.faults,
  u.destination,
  u.path,
  u.detail,
  u.found_at
FROM unusable_backups AS u
