-- 5e4703d5927be812 faults files
SELECT
  f.*,
  c.outcome,
  c.detail,
  c.check_id,
  c."at" AS found_at
FROM files AS f
JOIN faults AS c
  ON c.destination = f.destination AND c.path = f.path
