SELECT
  MAX(f.link) AS link
FROM selected AS f
