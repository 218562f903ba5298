UPDATE raw_backups SET state = :state WHERE backup_id = :backup_id
