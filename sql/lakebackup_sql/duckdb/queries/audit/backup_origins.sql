-- 92c1705afff1d1b5 raw_audit
SELECT
  a.detail ->> '$.request' AS origin
FROM raw_audit AS a
WHERE
  a.subject = $source AND a.outcome = 'ok' AND a.action LIKE 'backup %'
ORDER BY
  a."at" DESC
LIMIT 100
