-- That a backup is held, and why; no row: it is not.
SELECT * FROM holds AS h WHERE h.backup_id = :backup_id
