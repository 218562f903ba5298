UPDATE raw_backups SET state = :state WHERE array_contains(:backup_ids, backup_id)
