SELECT
  *
FROM policies AS p
WHERE
  p.source = $source
