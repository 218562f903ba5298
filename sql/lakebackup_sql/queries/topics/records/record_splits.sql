-- How to divide files (relation record_chosen: rows of record_files) into splits of about :size bytes, at most about
-- :most of them: the path that each split begins with, in order.
SELECT MIN(c.path) AS path
FROM (
  SELECT
    f.path,
    CEIL(SUM(f.bytes) OVER (ORDER BY f.path) / GREATEST(:size, SUM(f.bytes) OVER () / :most)) AS split
  FROM record_chosen AS f
) AS c
GROUP BY c.split
ORDER BY path
