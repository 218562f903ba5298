-- The backups of a source that are from the future, and those that depend on them, each before those that it depends on.
-- What other programs made is left out, and what is held or needed by one that is.
SELECT
  b.backup_id, b.kind, b.level, b.end_ts,
  CASE WHEN f.backup_id IS NULL THEN 'depends' ELSE 'future' END AS reason,
  CASE WHEN f.backup_id IS NULL THEN n.future_id END AS because_of
FROM backups AS b
JOIN (
  SELECT d.backup_id, MIN_BY(u.backup_id, u.link) AS future_id
  FROM (SELECT e.* FROM backups AS e LEFT SEMI JOIN future_backups AS v ON e.backup_id = v.backup_id) AS u
  JOIN backups AS d ON u.source = d.source AND u.base = d.base AND u.link <= d.link AND d.link < u.unlinked
  GROUP BY d.backup_id
) AS n ON b.backup_id = n.backup_id
LEFT SEMI JOIN own_backups AS o ON b.backup_id = o.backup_id
LEFT ANTI JOIN (
  SELECT e.backup_id
  FROM (SELECT k.* FROM backups AS k LEFT SEMI JOIN holds AS h ON k.backup_id = h.backup_id) AS w
  JOIN backups AS e ON w.source = e.source AND w.base = e.base AND e.link <= w.link AND w.link < e.unlinked
) AS h ON b.backup_id = h.backup_id
LEFT JOIN future_backups AS f ON b.backup_id = f.backup_id
WHERE b.source = :source
  AND b.state <> 'deleted'
ORDER BY b.place DESC, b.number DESC
