-- Who did what.
-- time: at, in UTC
SELECT a.*, timestamp_micros(a.at) AS time FROM raw_audit AS a
