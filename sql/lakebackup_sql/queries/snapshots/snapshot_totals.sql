-- What there is to do for a snapshot, by kind of change (`snapshot_compared` has the rows of snapshot_changes).
-- copies, copy_bytes: what has to be copied, each of several hard links' bytes once
-- small: how many of the copies are smaller than :pack_below
SELECT
  c.change,
  COUNT(*) AS files,
  CAST(COALESCE(SUM(c.bytes), 0) AS BIGINT) AS bytes,
  CAST(COALESCE(SUM(c.copied), 0) AS BIGINT) AS copies,
  CAST(COALESCE(SUM(c.copied * c.bytes), 0) AS BIGINT) AS copy_bytes,
  CAST(COALESCE(SUM(CASE WHEN c.bytes < :pack_below THEN c.copied END), 0) AS BIGINT) AS small
FROM (
  SELECT
    s.change, s.bytes,
    CASE
      WHEN s.change IN ('gone', 'unchanged', 'folder') OR s.same_path IS NOT NULL THEN 0
      WHEN s.scope = s.first_scope AND s.region = s.first_region AND s.name = s.first_name THEN 1
      ELSE 0
    END AS copied
  FROM snapshot_compared AS s
) AS c
GROUP BY c.change
ORDER BY c.change
