-- f9eac85f1d415bc2 schemas
SELECT
  s.scope,
  s.epoch,
  s.subject,
  s.version,
  s.schema_id,
  s.schema_type,
  s.schema_text,
  s.schema_references,
  MAX(s.log_position) AS log_position
FROM schemas AS s
WHERE
  s.source = $source
  AND s.kind = 'schema'
  AND s.problem IS NULL
  AND NOT s.schema_id IS NULL
  AND NOT s.schema_text IS NULL
GROUP BY
  s.scope,
  s.epoch,
  s.subject,
  s.version,
  s.schema_id,
  s.schema_type,
  s.schema_text,
  s.schema_references
ORDER BY
  log_position NULLS FIRST,
  s.scope NULLS FIRST,
  s.epoch NULLS FIRST,
  s.subject NULLS FIRST,
  s.version NULLS FIRST,
  s.schema_id NULLS FIRST
