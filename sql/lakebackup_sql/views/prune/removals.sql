-- One row per pruned data file: when, by which prune and why it was deleted. When a backup has had no file left for a
-- month, `catalog optimize` replaces its rows by one row per prune and reason.
-- time: at, in UTC
SELECT r.*, timestamp_micros(r.at) AS time FROM raw_removals AS r
