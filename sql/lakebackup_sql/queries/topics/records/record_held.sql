-- How many files a topic has in backups, and their bytes: what records() would read without any condition.
SELECT
  CAST(COUNT(*) AS BIGINT) AS files,
  CAST(COALESCE(SUM(f.bytes), 0) AS BIGINT) AS bytes
FROM files AS f
WHERE f.source = :source
  AND f.scope = :scope
  AND f.role = 'data'
