-- The last instant that is not in the future. Clocks of machines may differ by 5 minutes: what one of them recorded is
-- in the future of another only after that.
-- skew_ms: that difference
-- horizon_ms: ms since 1970 UTC
SELECT c.now_ms, s.skew_ms, c.now_ms + s.skew_ms AS horizon_ms
FROM clock AS c
CROSS JOIN (SELECT 300000 AS skew_ms) AS s
