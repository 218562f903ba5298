-- One row per backup that is on hold now: who put it on hold, why, and until when. A backup on hold stays, whatever the
-- policy says.
-- at: when the hold was set, microseconds since 1970 UTC
-- time: at, in UTC
-- until_time: until_ts, in UTC; null: forever, or after the year 9999
SELECT
  h.source, h.backup_id, h.at, h.actor, h.until_ts, h.reason,
  timestamp_micros(h.at) AS time,
  CASE WHEN h.until_ts <= 253402300799999 THEN timestamp_millis(h.until_ts) END AS until_time
FROM (SELECT r.*, ROW_NUMBER() OVER (PARTITION BY r.backup_id ORDER BY r.at DESC) AS nth FROM raw_holds AS r) AS h
WHERE h.nth = 1
  AND NOT h.released
  AND (h.until_ts IS NULL OR h.until_ts > (SELECT now_ms FROM clock))
