-- The files that backup number :number of a source of snapshots holds, in the order of a manifest.
SELECT
  f.scope, f.region, f.name, f.role, f.bytes, f.mtime_ms, f.mode, f.links, f.sha256, f.destination, f.path,
  f.position, f.codec, f.stored_bytes, f.key_id
FROM snapshot_files AS f
WHERE f.source = :source
  AND f.added_in <= :number
  AND COALESCE(f.gone_in > :number, TRUE)
ORDER BY f.scope, f.region, f.name
