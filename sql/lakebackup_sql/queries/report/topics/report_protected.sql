-- Until when each topic is protected, without those that are `uncounted`. Times in ms.
SELECT
  r.source, r.scope, r.epoch, r.backup_id, r.present,
  COALESCE(UNIX_MILLIS(r.restorable_time), r.restorable_ts) AS restorable_ts,
  r.lag_ms,
  COALESCE(UNIX_MILLIS(r.covered_time), r.covered_ts) AS covered_ts
FROM rpo AS r
LEFT ANTI JOIN uncounted AS u ON r.source = u.source AND r.scope = u.scope
