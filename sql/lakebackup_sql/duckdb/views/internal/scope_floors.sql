-- 894c44fadf6b3575 raw_floors
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
