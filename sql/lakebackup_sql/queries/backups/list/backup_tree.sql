-- The backups of :source (null: of all) that a tree of them is made from, in the order of what they hold.
SELECT
  source, number, backup_id, parent, base, place, branch, kind, level, state, intact, end_ts, end_time, files, bytes,
  entries, note
FROM backups
WHERE state <> 'deleted' AND (CAST(:source AS STRING) IS NULL OR source = :source)
ORDER BY source, place, number
