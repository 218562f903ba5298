-- a7d85cf3f73737cc scopes
SELECT DISTINCT
  s.scope
FROM scopes AS s
WHERE
  s.source = $source
ORDER BY
  s.scope NULLS FIRST
