-- The files with messages of the backups up to :link of the chain of :base that its last one needs: those that hold a
-- message with a tid up to :to_tid (null: all).
-- They are in the order in which tasks read them: one partition after another, as its messages were written.
-- link: the place of the file's backup in its chain
SELECT
  f.source, f.scope, f.epoch, f.region, f.generation, f.backup_id, b.link, f.destination, f.path, f.format, f.codec,
  f.bytes, f.sha256, f.entries, f.start_position, f.end_position, f.min_ts, f.max_ts, f.min_tid, f.max_tid
FROM files AS f
JOIN backups AS b ON f.backup_id = b.backup_id
WHERE f.source = :source
  AND b.source = :source
  AND b.base = :base
  AND b.link <= CAST(:link AS BIGINT)
  AND CAST(:link AS BIGINT) < b.unlinked
  AND b.state = 'complete'
  AND f.role = 'data'
  AND f.format LIKE 'kafka-avro-%'
  AND (CAST(:to_tid AS BIGINT) IS NULL OR f.min_tid IS NULL OR f.min_tid <= CAST(:to_tid AS BIGINT))
ORDER BY f.scope, CAST(f.region AS BIGINT), b.link, f.start_position, f.path
