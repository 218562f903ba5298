-- 2cc64dc508fcbe23 faults files
SELECT
  f.*,
  c.outcome,
  c.detail,
  c.check_id,
  c."at" AS found_at
FROM faults AS c
JOIN files AS f
  ON c.destination = f.destination AND c.path = f.path
