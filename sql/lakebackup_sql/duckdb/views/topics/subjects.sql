-- 095c1d9d43b13d01 chain_points schemas
SELECT
  source,
  scope,
  subject,
  version,
  schema_id,
  schema_type,
  schema_text,
  schema_references,
  deleted OR NOT ended IS NULL AS deleted,
  backup_id,
  log_region,
  log_position,
  log_time
FROM (
  SELECT
    s.*,
    d.log_position AS ended,
    ROW_NUMBER() OVER (
      PARTITION BY s.source, s.scope, s.subject, s.version
      ORDER BY s.log_position DESC, s.backup_id NULLS FIRST, d.log_position DESC
    ) AS newest
  FROM schemas AS s
  JOIN chain_points AS t
    ON s.source = t.source AND s.scope = t.scope AND s.epoch = t.epoch AND t.newest
  LEFT JOIN schemas AS d
    ON d.kind = 'delete_subject'
    AND s.source = d.source
    AND s.scope = d.scope
    AND s.epoch = d.epoch
    AND s.subject = d.subject
    AND s.version <= d.version
    AND s.log_position < d.log_position
  WHERE
    s.kind = 'schema' AND s.problem IS NULL
) AS numbered
WHERE
  newest = 1 AND NOT erased
