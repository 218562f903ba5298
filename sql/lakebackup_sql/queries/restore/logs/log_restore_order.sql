-- What tasks need to know of the files chosen of a log (relation selected: rows as of log_restore_files), those of the
-- column family :cf, one table after another; with :ends those alone that may hold the end of a whole table.
SELECT f.destination, f.path, f.scope, f.codec, f.key_id, f.bytes, f.raw_bytes, f.sha256, f.entries, f.start_key, f.cf
FROM selected AS f
WHERE f.cf = :cf
  AND (NOT :ends OR f.start_key = '')
ORDER BY f.scope, f.path
