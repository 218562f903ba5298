-- Each full with the backups that stand on it.
SELECT
  source, base, branch,
  count(*) AS backups,
  min(number) AS first_number,
  max(number) AS last_number,
  min(end_ts) AS full_end_ts,
  max(CASE WHEN state = 'complete' AND intact THEN end_ts END) AS restorable_end_ts,
  CAST(sum(files) AS BIGINT) AS files,
  CAST(sum(bytes) AS BIGINT) AS bytes,
  CAST(sum(entries) AS BIGINT) AS entries,
  min(CASE WHEN state = 'complete' AND intact THEN 1 ELSE 0 END) = 1 AS intact
FROM backups
GROUP BY source, base, branch
