-- 2a3c90fc15490797 raw_floors
SELECT
  source,
  scope,
  epoch,
  MAX(generation) AS generation
FROM raw_floors
GROUP BY
  source,
  scope,
  epoch
