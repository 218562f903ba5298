-- b06a1a5a6d3e2360 snapshot_compared
SELECT
  c.change,
  COUNT(*) AS files,
  TRY_CAST(COALESCE(SUM(c.bytes), 0) AS BIGINT) AS bytes,
  TRY_CAST(COALESCE(SUM(c.copied), 0) AS BIGINT) AS copies,
  TRY_CAST(COALESCE(SUM(c.copied * c.bytes), 0) AS BIGINT) AS copy_bytes,
  TRY_CAST(COALESCE(SUM(CASE WHEN c.bytes < $pack_below THEN c.copied END), 0) AS BIGINT) AS small
FROM (
  SELECT
    s.change,
    s.bytes,
    CASE
      WHEN s.change IN ('gone', 'unchanged', 'folder') OR NOT s.same_path IS NULL
      THEN 0
      WHEN s.scope = s.first_scope AND s.region = s.first_region AND s.name = s.first_name
      THEN 1
      ELSE 0
    END AS copied
  FROM snapshot_compared AS s
) AS c
GROUP BY
  c.change
ORDER BY
  c.change NULLS FIRST
