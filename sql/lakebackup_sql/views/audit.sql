-- Who did what.
SELECT a.*, timestamp_micros(a.at) AS time FROM raw_audit AS a
