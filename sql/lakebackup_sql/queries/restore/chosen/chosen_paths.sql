-- Files by their path alone (relation chosen: path): a path that several destinations have is none of them.
-- :first_path, :last_path, :first_scope, :last_scope: as chosen_rows has them.
SELECT
  f.path,
  MAX(f.source) AS source, MAX(f.scope) AS scope, MAX(f.epoch) AS epoch, MAX(f.region) AS region,
  MAX(f.generation) AS generation, MAX(f.backup_id) AS backup_id, MAX(f.destination) AS destination,
  MAX(f.format) AS format, MAX(f.codec) AS codec, MAX(f.bytes) AS bytes, MAX(f.raw_bytes) AS raw_bytes,
  MAX(f.sha256) AS sha256, MAX(f.entries) AS entries, MAX(f.start_position) AS start_position,
  MAX(f.end_position) AS end_position, MAX(f.min_ts) AS min_ts, MAX(f.max_ts) AS max_ts
FROM files AS f
JOIN (SELECT DISTINCT c.path FROM chosen AS c) AS w ON f.path = w.path
WHERE f.path BETWEEN :first_path AND :last_path
  AND (CAST(:first_scope AS STRING) IS NULL OR f.scope BETWEEN :first_scope AND :last_scope)
GROUP BY f.path
HAVING COUNT(DISTINCT f.destination) = 1
ORDER BY scope, epoch, region, start_position, path
