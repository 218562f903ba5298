-- d7fb997e354883bb restore_points
SELECT
  *
FROM restore_points
WHERE
  source = $source AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), scope)
