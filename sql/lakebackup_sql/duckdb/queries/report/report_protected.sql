-- 9e424b1ae9469c51 rpo
SELECT
  r.source,
  r.scope,
  r.epoch,
  r.backup_id,
  r.present,
  COALESCE(EPOCH_MS(r.restorable_time), r.restorable_ts) AS restorable_ts,
  r.lag_ms,
  COALESCE(EPOCH_MS(r.covered_time), r.covered_ts) AS covered_ts
FROM rpo AS r
