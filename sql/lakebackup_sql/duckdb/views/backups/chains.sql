-- 6287790017352207 backups own_kinds
SELECT
  source,
  base,
  branch,
  COUNT(*) AS backups,
  MIN(number) AS first_number,
  MAX(number) AS last_number,
  MIN(MIN(end_ts)) OVER (PARTITION BY source, base) AS full_end_ts,
  MAX(CASE WHEN state = 'complete' AND intact THEN end_ts END) AS restorable_end_ts,
  CAST(SUM(files) AS BIGINT) AS files,
  CAST(SUM(bytes) AS BIGINT) AS bytes,
  CAST(SUM(entries) AS BIGINT) AS entries,
  MIN(CASE WHEN state = 'complete' AND intact THEN 1 ELSE 0 END) = 1 AS intact,
  MIN(MIN(end_time)) OVER (PARTITION BY source, base) AS full_end_time,
  MAX(CASE WHEN state = 'complete' AND intact THEN end_time END) AS restorable_end_time
FROM backups
LEFT JOIN (
  SELECT
    source_kind AS own_kind
  FROM own_kinds
) AS k
  ON source_kind = k.own_kind
WHERE
  kind <> 'log' OR NOT k.own_kind IS NULL
GROUP BY
  source,
  base,
  branch
