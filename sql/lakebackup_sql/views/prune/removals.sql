-- Data files that were pruned, and why. Of a backup that has no file left a month later, `catalog optimize` leaves one
-- row for each prune and reason.
-- time: at, in UTC
SELECT r.*, timestamp_micros(r.at) AS time FROM raw_removals AS r
