-- 8b4cdc6b241d2675 clock
SELECT
  c.now_ms,
  s.skew_ms,
  c.now_ms + s.skew_ms AS horizon_ms
FROM clock AS c
CROSS JOIN (
  SELECT
    300000 AS skew_ms
) AS s
