SELECT
  MAX(f."at") AS "at"
FROM floors AS f
WHERE
  f.source = $source
