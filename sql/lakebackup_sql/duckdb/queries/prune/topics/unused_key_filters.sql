-- 24987bb9ebf9030b files raw_files raw_removals
SELECT
  g.destination,
  g.keys_path
FROM (
  SELECT DISTINCT
    f.destination,
    f.keys_path
  FROM raw_removals AS r
  JOIN raw_files AS f
    ON r.destination = f.destination AND r.path = f.path
  WHERE
    r.prune_id = $prune_id AND NOT f.keys_path IS NULL
) AS g
LEFT JOIN (
  SELECT DISTINCT
    destination,
    keys_path
  FROM files
  WHERE
    NOT keys_path IS NULL
) AS k
  ON g.destination = k.destination AND g.keys_path = k.keys_path
WHERE
  k.keys_path IS NULL
ORDER BY
  g.destination NULLS FIRST,
  g.keys_path NULLS FIRST
