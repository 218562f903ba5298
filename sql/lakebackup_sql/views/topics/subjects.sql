-- One row per version of a subject in a schema registry: its schema, and the id that values carry. The view shows the
-- registry as of its newest backup. Erased schemas are left out. Records from before the registry's topic was recreated
-- do not count.
-- deleted: true: marked as deleted, by itself or with its subject, and still readable by its id
-- backup_id: the newest backup that holds the record
-- log_time: when the record was written, in UTC
SELECT
  source, scope, subject, version, schema_id, schema_type, schema_text, schema_references,
  deleted OR ended IS NOT NULL AS deleted,
  backup_id, log_region, log_position, log_time
FROM (
  SELECT
    s.*,
    d.log_position AS ended,
    row_number() OVER (
      PARTITION BY s.source, s.scope, s.subject, s.version
      ORDER BY s.log_position DESC, s.backup_id, d.log_position DESC NULLS LAST
    ) AS newest
  FROM schemas AS s
  JOIN chain_points AS t ON s.source = t.source AND s.scope = t.scope AND s.epoch = t.epoch AND t.newest
  LEFT JOIN schemas AS d
    ON d.kind = 'delete_subject' AND s.source = d.source AND s.scope = d.scope AND s.epoch = d.epoch
    AND s.subject = d.subject AND s.version <= d.version AND s.log_position < d.log_position
  WHERE s.kind = 'schema' AND s.problem IS NULL
) AS numbered
WHERE newest = 1 AND NOT erased
