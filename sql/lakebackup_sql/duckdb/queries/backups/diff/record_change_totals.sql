-- e82f192d98ff84fa record_changed
SELECT
  c.scope,
  CAST(SUM(CASE WHEN c.change = 'added' THEN 1 ELSE 0 END) AS BIGINT) AS added,
  CAST(SUM(CASE WHEN c.change = 'gone' THEN 1 ELSE 0 END) AS BIGINT) AS gone,
  CAST(SUM(CASE WHEN c.change = 'changed' THEN 1 ELSE 0 END) AS BIGINT) AS changed
FROM record_changed AS c
GROUP BY
  c.scope
