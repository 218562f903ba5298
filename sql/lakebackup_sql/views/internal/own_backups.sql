-- Backups whose files this program keeps: those of its own kinds of sources, not those that other programs made.
SELECT b.*
FROM backups AS b
WHERE b.source_kind IN ('kafka', 'couchbase', 'snapshot', 'changes', 'queues')
