-- One row: which instant is the last that does not count as the future. The clocks of machines may differ by 5 minutes.
-- So what one machine recorded counts as the future on another only beyond that difference.
-- skew_ms: the difference that clocks may have
-- horizon_ms: the last instant that does not count as the future, ms since 1970 UTC
SELECT c.now_ms, s.skew_ms, c.now_ms + s.skew_ms AS horizon_ms
FROM clock AS c
CROSS JOIN (SELECT 300000 AS skew_ms) AS s
