-- The differences of two backups (relation changes, rows of diff_files), in an order for people.
SELECT * FROM changes ORDER BY change, scope, region, path, old_path
