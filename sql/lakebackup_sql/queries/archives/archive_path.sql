-- The backups that restoring the backup :backup_id needs, itself the last, in the order of what they hold; when a prune
-- last deleted files of the source (null: never), in microseconds since 1970 UTC; the policy in force.
SELECT
  b.backup_id, b.source, b.source_kind, b.number, b.kind, b.level, b.parent, b.base, b.link, b.place, b.state, b.chained AS intact,
  b.end_ts, b.finished_at, b.created_by, b.note, b.bytes,
  p.pruned_at, r.at AS policy_at, r.window_days, r.redundancy, r.min_redundancy
FROM needs AS n
JOIN backups AS b ON n.needed_id = b.backup_id
LEFT JOIN (SELECT source, MAX(at) AS pruned_at FROM raw_removals GROUP BY source) AS p ON b.source = p.source
LEFT JOIN policies AS r ON b.source = r.source
WHERE n.backup_id = :backup_id
  AND (n.state = 'complete' OR n.needed_id = n.backup_id)
ORDER BY b.link
