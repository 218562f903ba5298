-- 9c76e4df8007a3d5 backups
SELECT
  b.*,
  m.last_branch,
  m.last_link,
  CASE
    WHEN b.state <> 'complete'
    THEN b.state
    WHEN NOT b.chained
    THEN 'chain'
    WHEN NOT b.intact
    THEN 'damaged'
    WHEN b.unlinked <= m.last_link
    THEN 'aside'
  END AS reason
FROM backups AS b
JOIN (
  SELECT
    source,
    base,
    MAX(branch) AS last_branch,
    MAX(link) AS last_link
  FROM backups
  GROUP BY
    source,
    base
) AS m
  ON b.source = m.source AND b.base = m.base
