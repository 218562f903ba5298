-- b84ea5a126b31ee4 raw_floors raw_scopes scope_floors
SELECT
  s.source,
  s.backup_id
FROM raw_scopes AS s
LEFT JOIN scope_floors AS l
  ON s.source = l.source AND s.scope = l.scope AND s.epoch = l.epoch
WHERE
  s.source IN (
    SELECT
      source
    FROM raw_floors
    WHERE
      generation > 0
  )
GROUP BY
  s.source,
  s.backup_id
HAVING
  MIN(CASE WHEN s.generation < l.generation THEN 1 ELSE 0 END) = 1
