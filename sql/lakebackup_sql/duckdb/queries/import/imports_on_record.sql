-- c4f8cee55389bb38 audit
SELECT
  a."at",
  a.subject,
  a.detail
FROM audit AS a
WHERE
  a.action = 'catalog import'
ORDER BY
  a."at" NULLS FIRST,
  a.subject NULLS FIRST
