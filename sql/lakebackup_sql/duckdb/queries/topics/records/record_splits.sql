-- 1b288fe7ce8683ef record_chosen
SELECT
  MIN(c.path) AS path
FROM (
  SELECT
    f.path,
    CEIL(
      SUM(f.bytes) OVER (ORDER BY f.path NULLS FIRST) / NULLIF(GREATEST($size, SUM(f.bytes) OVER () / NULLIF($most, 0)), 0)
    ) AS split
  FROM record_chosen AS f
) AS c
GROUP BY
  c.split
ORDER BY
  path NULLS FIRST
