-- Files of a snapshot (`snapshot_listed`) whose SHA-256 decides what is done with them: those that have the size and
-- time of what is stored and another inode or ctime, or one that is not known (not with :trust_mtime). :verify: all that
-- have the size and time of what is stored. :find_same: those that count as new or changed and have the size of any file that is
-- stored.
SELECT l.scope, l.region, l.name, l.folder, l.bytes, l.mtime_ns, l.inode
FROM snapshot_listed AS l
LEFT JOIN (
  SELECT f.scope, f.region, f.name, f.bytes, f.mtime_ms, f.ctime_ns, f.inode
  FROM snapshot_files AS f
  WHERE f.source = :source AND f.gone_in IS NULL
) AS v
  ON l.scope = v.scope AND l.region = v.region AND l.name = v.name AND l.bytes = v.bytes AND l.mtime_ms = v.mtime_ms
LEFT JOIN (
  SELECT DISTINCT s.bytes FROM snapshot_files AS s WHERE s.source = :source AND s.stored AND s.sha256 IS NOT NULL
) AS z ON l.bytes = z.bytes
WHERE l.role <> 'folder'
  AND NOT l.always
  AND (
    (:verify AND v.name IS NOT NULL)
    OR (
      NOT :trust_mtime
      AND v.name IS NOT NULL
      AND (COALESCE(v.inode <> l.inode, FALSE) OR (l.by_ctime AND COALESCE(v.ctime_ns <> l.ctime_ns, TRUE)))
    )
    OR (:find_same AND v.name IS NULL AND z.bytes IS NOT NULL)
  )
