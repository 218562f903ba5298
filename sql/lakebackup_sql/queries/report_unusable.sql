-- Backups that cannot be used, and why.
SELECT * FROM unusable_backups
