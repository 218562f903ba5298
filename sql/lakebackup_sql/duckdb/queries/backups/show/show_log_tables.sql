-- eec82ec0a31efc15 files log_tables
SELECT
  f.scope,
  n.db || '.' || n.name AS name,
  f.regions,
  f.files,
  f.bytes,
  f.entries,
  f.min_ts,
  f.max_ts
FROM (
  SELECT
    source,
    scope,
    COUNT(DISTINCT CASE WHEN region <> '-' THEN region END) AS regions,
    COUNT(*) AS files,
    CAST(SUM(bytes) AS BIGINT) AS bytes,
    CAST(SUM(entries) AS BIGINT) AS entries,
    MIN(min_ts) AS min_ts,
    MAX(max_ts) AS max_ts
  FROM files
  WHERE
    backup_id = $backup_id AND format = 'log-arrow-1'
  GROUP BY
    source,
    scope
) AS f
LEFT JOIN log_tables AS n
  ON f.source = n.source AND f.scope = TRY_CAST(n.table_id AS TEXT) AND n.to_ts IS NULL
ORDER BY
  LENGTH(f.scope) NULLS FIRST,
  f.scope NULLS FIRST
