-- 407f47fe4f3758ad raw_audit
SELECT
  a.detail
FROM raw_audit AS a
WHERE
  a.action = 'skip message' AND a.subject = $source
ORDER BY
  a."at" NULLS FIRST,
  a.detail NULLS FIRST
