-- One row per finding of verify, over all its runs: what was checked, and with which outcome.
-- time: at, in UTC
SELECT c.*, timestamp_micros(c.at) AS time FROM raw_checks AS c
