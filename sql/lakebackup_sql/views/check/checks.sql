-- What verify found, all runs.
-- time: at, in UTC
SELECT c.*, timestamp_micros(c.at) AS time FROM raw_checks AS c
