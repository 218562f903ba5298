-- Data files that were pruned, and why.
-- time: at, in UTC
SELECT r.*, timestamp_micros(r.at) AS time FROM raw_removals AS r
