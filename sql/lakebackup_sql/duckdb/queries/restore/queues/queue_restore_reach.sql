-- 622aeade38c1856b selected
SELECT
  MAX(f.link) AS link
FROM selected AS f
