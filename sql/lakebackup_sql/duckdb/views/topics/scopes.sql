-- 331f4ac05080492c raw_backups raw_scopes
SELECT
  s.*,
  TIMESTAMP_MILLIS(NULLIF(s.complete_ts, -1)) AS complete_time
FROM raw_scopes AS s
JOIN raw_backups AS b
  ON b.backup_id = s.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')
