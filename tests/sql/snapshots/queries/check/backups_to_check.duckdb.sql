SELECT
  b.destination,
  b.source,
  b.backup_id,
  b.source_kind,
  b.end_ts,
  b.digest
FROM backups AS b
WHERE
  b.state IN ('complete', 'out_of_sync')
  AND b.source_kind IN ('kafka', 'couchbase', 'snapshot', 'changes', 'queues')
  AND (
    $backup_ids = ''
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), b.backup_id)
  )
