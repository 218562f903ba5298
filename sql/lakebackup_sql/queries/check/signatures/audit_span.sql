-- The entries of the audit log from the time :first_at to :last_at (microseconds since 1970 UTC, both included).
SELECT a.*
FROM raw_audit AS a
WHERE a.at BETWEEN :first_at AND :last_at
