SELECT
  scope,
  subject,
  version,
  schema_id,
  schema_type,
  schema_text,
  schema_references,
  deleted
FROM subjects
WHERE
  source = $source
  AND (
    TRY_CAST($subject AS TEXT) IS NULL OR subject = TRY_CAST($subject AS TEXT)
  )
ORDER BY
  scope NULLS FIRST,
  subject NULLS FIRST,
  version NULLS FIRST
