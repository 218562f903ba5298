-- One row per recorded action: who did what, when, and how it ended. Each command that writes to the backups or
-- restores them is recorded.
-- time: at, in UTC
SELECT a.*, timestamp_micros(a.at) AS time FROM raw_audit AS a
