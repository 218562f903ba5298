-- 2049e5baac1094ea backups future_backups holds own_backups
SELECT
  b.backup_id,
  b.kind,
  b.level,
  b.end_ts,
  CASE WHEN f.backup_id IS NULL THEN 'depends' ELSE 'future' END AS reason,
  CASE WHEN f.backup_id IS NULL THEN n.future_id END AS because_of
FROM backups AS b
JOIN (
  SELECT
    d.backup_id,
    ARG_MIN(u.backup_id, u.link) AS future_id
  FROM (
    SELECT
      e.*
    FROM backups AS e
    SEMI JOIN future_backups AS v
      ON e.backup_id = v.backup_id
  ) AS u
  JOIN backups AS d
    ON u.source = d.source
    AND u.base = d.base
    AND u.link <= d.link
    AND d.link < u.unlinked
  GROUP BY
    d.backup_id
) AS n
  ON b.backup_id = n.backup_id
SEMI JOIN own_backups AS o
  ON b.backup_id = o.backup_id
ANTI JOIN (
  SELECT
    e.backup_id
  FROM (
    SELECT
      k.*
    FROM backups AS k
    SEMI JOIN holds AS h
      ON k.backup_id = h.backup_id
  ) AS w
  JOIN backups AS e
    ON w.source = e.source
    AND w.base = e.base
    AND e.link <= w.link
    AND w.link < e.unlinked
) AS h
  ON b.backup_id = h.backup_id
LEFT JOIN future_backups AS f
  ON b.backup_id = f.backup_id
WHERE
  b.source = $source AND b.state <> 'deleted'
ORDER BY
  b.place DESC,
  b.number DESC
