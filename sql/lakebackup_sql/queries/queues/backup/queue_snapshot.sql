-- The backup of a snapshot, of :source, that was made for a full of queues, which its note names.
SELECT backup_id FROM raw_backups WHERE source = :source AND note = :note AND state = 'complete' ORDER BY number DESC LIMIT 1
