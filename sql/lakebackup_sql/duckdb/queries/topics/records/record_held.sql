-- e050d1aa290afc85 files
SELECT
  TRY_CAST(COUNT(*) AS BIGINT) AS files,
  TRY_CAST(COALESCE(SUM(f.bytes), 0) AS BIGINT) AS bytes
FROM files AS f
WHERE
  f.source = $source AND f.scope = $scope AND f.role = 'data'
