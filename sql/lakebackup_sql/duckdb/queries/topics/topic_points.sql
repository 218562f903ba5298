-- 5d86ad630724b7d9 chain_points
SELECT
  *
FROM chain_points
WHERE
  source = $source AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), scope)
