-- The log files of the change feed :source that a compaction merges, of backups with a number up to :newest that end by
-- :until (null: all): those with less than :small bytes of records, where several are of one table, column family and
-- operation. Meta keys, files of held backups and files that are not whole stay as they are.
SELECT
  n.destination, n.path, n.backup_id, n.added_in, n.source, n.scope, n.epoch, n.region, n.codec, n.key_id, n.bytes,
  n.raw_bytes, n.sha256, n.entries, n.cf, n.op
FROM (
  SELECT f.*, COUNT(*) OVER (PARTITION BY f.scope, f.cf, f.op) AS alike
  FROM files AS f
  JOIN backups AS b ON f.backup_id = b.backup_id
  LEFT ANTI JOIN departures AS d ON f.destination = d.destination AND f.path = d.path
  LEFT ANTI JOIN holds AS h ON f.backup_id = h.backup_id
  LEFT ANTI JOIN faults AS c ON f.destination = c.destination AND f.path = c.path
  WHERE f.source = :source
    AND f.format = 'log-arrow-1'
    AND f.role = 'data'
    AND f.raw_bytes < :small
    AND b.state = 'complete'
    AND b.number <= :newest
    AND (CAST(:until AS BIGINT) IS NULL OR b.end_ts <= :until)
) AS n
WHERE n.alike > 1
