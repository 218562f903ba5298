-- Tables of which the backup :backup_id of a change feed wrote log files, with their newest names; meta: what databases
-- and tables there are.
-- regions: of the feed; 0: merged from several
SELECT
  f.scope,
  CONCAT(n.db, '.', n.name) AS name,
  f.regions, f.files, f.bytes, f.entries, f.min_ts, f.max_ts
FROM (
  SELECT
    source, scope,
    COUNT(DISTINCT CASE WHEN region <> '-' THEN region END) AS regions,
    COUNT(*) AS files,
    CAST(SUM(bytes) AS BIGINT) AS bytes,
    CAST(SUM(entries) AS BIGINT) AS entries,
    MIN(min_ts) AS min_ts,
    MAX(max_ts) AS max_ts
  FROM files
  WHERE backup_id = :backup_id
    AND format = 'log-arrow-1'
  GROUP BY source, scope
) AS f
LEFT JOIN log_tables AS n ON f.source = n.source AND f.scope = CAST(n.table_id AS STRING) AND n.to_ts IS NULL
ORDER BY LENGTH(f.scope), f.scope
