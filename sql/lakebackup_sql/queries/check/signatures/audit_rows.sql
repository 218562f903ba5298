-- Every entry of the audit log, to compare with those that are signed.
SELECT a.*
FROM raw_audit AS a
