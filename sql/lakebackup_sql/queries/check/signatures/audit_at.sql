-- The entries of the audit log of the time :at (microseconds since 1970 UTC).
SELECT a.*
FROM raw_audit AS a
WHERE a.at = :at
