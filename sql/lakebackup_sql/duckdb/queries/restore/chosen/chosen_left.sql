-- 9213ad8a3e29c70f chosen selected
SELECT
  MIN(c.path) AS first_path,
  MAX(c.path) AS last_path
FROM chosen AS c
ANTI JOIN selected AS s
  ON c.path = s.path
