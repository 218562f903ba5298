-- What the schema registries of :source ever held, erased schemas too, as long as a backup has the record: the meaning
-- of the ids that values carry, the newest record of each last.
SELECT
  s.scope, s.epoch, s.subject, s.version, s.schema_id, s.schema_type, s.schema_text, s.schema_references,
  MAX(s.log_position) AS log_position
FROM schemas AS s
WHERE s.source = :source
  AND s.kind = 'schema'
  AND s.problem IS NULL
  AND s.schema_id IS NOT NULL
  AND s.schema_text IS NOT NULL
GROUP BY
  s.scope, s.epoch, s.subject, s.version, s.schema_id, s.schema_type, s.schema_text, s.schema_references
ORDER BY log_position, s.scope, s.epoch, s.subject, s.version, s.schema_id
