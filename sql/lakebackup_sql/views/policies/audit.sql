-- Who did what: each command that writes to the backups or restores them, and how it ended.
-- time: at, in UTC
SELECT a.*, timestamp_micros(a.at) AS time FROM raw_audit AS a
