-- The backups whose ids are in :backup_ids (separated by commas; empty: all), with what their sidecars must say; of
-- those that this program keeps the files of (topics, snapshots, change feeds, queues, and archives that were
-- imported).
SELECT b.destination, b.source, b.backup_id, b.source_kind, b.end_ts, b.digest
FROM backups AS b
WHERE b.state IN ('complete', 'out_of_sync')
  AND b.source_kind IN ('kafka', 'couchbase', 'snapshot', 'changes', 'queues')
  AND (:backup_ids = '' OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), b.backup_id))
