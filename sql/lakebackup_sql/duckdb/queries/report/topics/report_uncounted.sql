-- 82d87061e873ecbd raw_schemas raw_scopes
SELECT
  s.source,
  s.scope
FROM raw_scopes AS s
WHERE
  SUBSTRING(s.scope, 1, 2) = '__' AND NOT $internal
UNION
SELECT
  r.source,
  r.scope
FROM raw_schemas AS r
WHERE
  NOT $internal
