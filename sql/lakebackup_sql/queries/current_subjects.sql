-- The schemas that the registries of :source held at their newest backup; :subject null: of all subjects.
SELECT scope, subject, version, schema_id, schema_type, schema_text, schema_references, deleted
FROM subjects
WHERE source = :source AND (CAST(:subject AS STRING) IS NULL OR subject = CAST(:subject AS STRING))
ORDER BY scope, subject, version
