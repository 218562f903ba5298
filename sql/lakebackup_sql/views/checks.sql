-- What verify found, all runs.
SELECT c.*, timestamp_micros(c.at) AS time FROM raw_checks AS c
