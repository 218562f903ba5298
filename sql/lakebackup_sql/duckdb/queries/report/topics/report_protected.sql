-- 05d1eee5716a91d0 rpo uncounted
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
ANTI JOIN uncounted AS u
  ON r.source = u.source AND r.scope = u.scope
