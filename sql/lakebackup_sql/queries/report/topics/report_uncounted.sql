-- Topics that the report counts only if :internal is true: those that Kafka and its tools use internally (their names
-- begin with __), and those of schema registries.
SELECT s.source, s.scope
FROM raw_scopes AS s
WHERE SUBSTR(s.scope, 1, 2) = '__' AND NOT :internal
UNION
SELECT r.source, r.scope
FROM raw_schemas AS r
WHERE NOT :internal
