-- eb84dc612b7f0a22 clock raw_holds
SELECT
  h.source,
  h.backup_id,
  h."at",
  h.actor,
  h.until_ts,
  h.reason,
  TIMESTAMP_MICROS(h."at") AS time,
  CASE WHEN h.until_ts <= 253402300799999 THEN TIMESTAMP_MILLIS(h.until_ts) END AS until_time
FROM (
  SELECT
    r.*,
    ROW_NUMBER() OVER (PARTITION BY r.backup_id ORDER BY r."at" DESC) AS nth
  FROM raw_holds AS r
) AS h
WHERE
  h.nth = 1
  AND NOT h.released
  AND (
    h.until_ts IS NULL OR h.until_ts > (
      SELECT
        now_ms
      FROM clock
    )
  )
