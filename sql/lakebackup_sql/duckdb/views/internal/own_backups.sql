-- 813585d6b2186922 backups
SELECT
  b.*
FROM backups AS b
WHERE
  b.source_kind IN ('kafka', 'couchbase', 'snapshot', 'changes', 'queues')
