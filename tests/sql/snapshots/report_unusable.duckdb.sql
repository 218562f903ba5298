SELECT
  *
FROM unusable_backups
