-- One row per backup: whether the next backup can continue it.
-- last_branch: the last branch of its chain
-- last_link: the last link of its chain
-- reason: why it cannot be continued: its state, chain (a backup that it needs cannot be used), damaged (verify found a
--   file of it, or of a backup that it needs, missing, changed or damaged) or aside (another backup replaces it); null:
--   it can be continued
SELECT
  b.*, m.last_branch, m.last_link,
  CASE
    WHEN b.state <> 'complete' THEN b.state
    WHEN NOT b.chained THEN 'chain'
    WHEN NOT b.intact THEN 'damaged'
    WHEN b.unlinked <= m.last_link THEN 'aside'
  END AS reason
FROM backups AS b
JOIN (
  SELECT source, base, MAX(branch) AS last_branch, MAX(link) AS last_link
  FROM backups
  GROUP BY source, base
) AS m ON b.source = m.source AND b.base = m.base
