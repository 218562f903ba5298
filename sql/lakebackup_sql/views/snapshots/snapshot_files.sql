-- One row per version of a file in snapshots: which backups have it, and where its bytes are stored. These are the
-- backups of the source with a number from `added_in` to `gone_in` - 1. Files of deleted backups are included, because
-- later backups may have them too.
-- codec: none: the bytes are those of the file; zstd: they are one zstd frame
-- stored_bytes: how many bytes of the object they are, from `position` on; of an encrypted object, of its content
-- key_id: the data key of the object (see data_keys); null: it is not encrypted
-- mtime: mtime_ms, in UTC; null: a time outside the years 1 to 9999
-- gone_in: number of the first backup that does not have this version of the file; null: the newest backup has it
-- gone_by: id of that backup
-- stored: false: a prune deleted the object that holds its bytes
SELECT
  f.source, f.scope, f.region, f.name, f.role, f.bytes, f.mtime_ms,
  timestamp_millis(CASE WHEN f.mtime_ms BETWEEN -62135596800000 AND 253402300799999 THEN f.mtime_ms END) AS mtime,
  f.mode, f.links, f.ctime_ns, f.inode, f.sha256, f.destination, f.path, f.position,
  COALESCE(f.codec, 'none') AS codec,
  COALESCE(f.stored_bytes, f.bytes) AS stored_bytes,
  f.key_id, f.backup_id, f.added_in,
  g.gone_in, g.gone_by,
  r.path IS NULL AS stored
FROM raw_snapshot_files AS f
JOIN raw_backups AS b ON f.backup_id = b.backup_id
LEFT JOIN (
  SELECT d.source, d.scope, d.region, d.name, d.added_in, d.gone_in, d.gone_by
  FROM raw_snapshot_departures AS d
  JOIN raw_backups AS e ON d.gone_by = e.backup_id
) AS g
  ON f.source = g.source AND f.scope = g.scope AND f.region = g.region AND f.name = g.name AND f.added_in = g.added_in
LEFT JOIN (
  SELECT DISTINCT destination, path FROM raw_removals
) AS r ON f.destination = r.destination AND f.path = r.path
