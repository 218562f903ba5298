-- Every file of a snapshot that is not as it was (`snapshot_compared` has the rows of snapshot_changes), neighbours
-- after each other and the hard links of one file together.
-- cost: of a file that is copied its bytes and :overhead, of another row :light
SELECT
  s.scope, s.region, s.name, s.role, s.folder, s.bytes, s.mtime_ns, s.mtime_ms, s.mode, s.links, s.inode, s.ctime_ns,
  s.added_in, s.change, s.same_destination, s.same_path, s.same_position, s.same_codec, s.same_stored_bytes,
  s.same_key_id, s.same_sha256, s.first_scope, s.first_region, s.first_name,
  CAST(
    CASE
      WHEN s.change IN ('gone', 'folder') OR s.same_path IS NOT NULL THEN :light
      WHEN s.scope = s.first_scope AND s.region = s.first_region AND s.name = s.first_name THEN s.bytes + :overhead
      ELSE :light
    END AS BIGINT
  ) AS cost
FROM snapshot_compared AS s
WHERE s.change <> 'unchanged'
ORDER BY s.first_scope, s.first_region, s.first_name, s.scope, s.region, s.name
