-- 6730670858547876 policies
SELECT
  *
FROM policies AS p
WHERE
  p.source = $source
