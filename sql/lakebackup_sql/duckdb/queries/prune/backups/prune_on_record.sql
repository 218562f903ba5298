-- 7c1df4266b66d7f2 raw_floors removals
SELECT
  (
    SELECT
      COUNT(*)
    FROM raw_floors AS f
    WHERE
      f.prune_id = $prune_id
  ) AS floors,
  (
    SELECT
      COUNT(*)
    FROM removals AS r
    WHERE
      r.prune_id = $prune_id
  ) AS removals
