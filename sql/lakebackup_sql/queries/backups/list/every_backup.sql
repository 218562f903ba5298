-- Every backup with all its columns, whatever its state.
SELECT b.*
FROM raw_backups AS b
ORDER BY b.source, b.number
