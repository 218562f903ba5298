-- 48f020699b9a5d26 clock
SELECT
  c.now_ms,
  s.skew_ms,
  c.now_ms + s.skew_ms AS horizon_ms
FROM clock AS c
CROSS JOIN (
  SELECT
    300000 AS skew_ms
) AS s
