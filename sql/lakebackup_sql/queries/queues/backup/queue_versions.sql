-- The versions of the schema that the backup :backup_id of queues found.
SELECT version, from_tid FROM raw_queue_schemas WHERE backup_id = :backup_id ORDER BY from_tid, version
