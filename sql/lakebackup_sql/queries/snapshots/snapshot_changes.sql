-- Each file of a snapshot (`snapshot_listed`) beside what the source's newest backup has of it, and each that only that
-- has. :copy_all: all files are copied. :find_same: a new file with the SHA-256 (`snapshot_hashed`) of a stored one is
-- not stored again. :trust_mtime: a file of the same size and time is the same, whatever its inode and ctime are.
-- change: unchanged; new; changed (in size or time, or in inode or ctime and contents); touched (its inode, ctime or
--   permissions alone: it gets a row that refers to what is stored); unlike (only its SHA-256 differs from what is
--   stored); again (it is copied whatever it is, or what is stored of it is not whole, or its SHA-256 is asked for and
--   not known); gone; folder (role folder: it is new, or its mode or time changed; without a mode: it is gone. A folder
--   that is as it was has no row)
-- added_in: of the row that ends here, or that continues
-- first_*: of the file's hard links the one whose bytes are copied, itself without others. On a cluster the numbers of
-- devices are each worker's own: files of one number that differ in size or time are two
WITH live AS (
  SELECT
    f.scope, f.region, f.name, f.bytes, f.mtime_ms, f.mode, f.ctime_ns, f.inode, f.sha256, f.destination, f.path,
    f.position, f.codec, f.stored_bytes, f.key_id, f.added_in,
    f.stored AND c.path IS NULL AS whole
  FROM snapshot_files AS f
  LEFT JOIN faults AS c ON f.destination = c.destination AND f.path = c.path
  WHERE f.source = :source AND f.gone_in IS NULL
),
compared AS (
  SELECT
    COALESCE(l.scope, v.scope) AS scope,
    COALESCE(l.region, v.region) AS region,
    COALESCE(l.name, v.name) AS name,
    l.role, l.folder, l.bytes, l.mtime_ns, l.mtime_ms, l.mode, l.links, l.device, l.inode, l.ctime_ns, h.sha256,
    v.added_in,
    v.destination AS stored_destination,
    v.path AS stored_path,
    v.position AS stored_position,
    v.codec AS stored_codec,
    v.stored_bytes,
    v.key_id AS stored_key_id,
    CASE
      WHEN l.name IS NULL THEN 'gone'
      WHEN v.name IS NULL THEN 'new'
      WHEN v.bytes IS NULL OR v.bytes <> l.bytes OR v.mtime_ms <> l.mtime_ms THEN 'changed'
      WHEN :copy_all OR l.always OR NOT v.whole THEN 'again'
      WHEN h.sha256 IS NOT NULL AND v.sha256 IS NULL THEN 'again'
      WHEN :trust_mtime
        OR NOT (COALESCE(v.inode <> l.inode, FALSE) OR (l.by_ctime AND COALESCE(v.ctime_ns <> l.ctime_ns, TRUE)))
        THEN CASE WHEN h.sha256 <> v.sha256 THEN 'unlike' ELSE 'unchanged' END
      WHEN h.sha256 IS NULL THEN 'again'
      WHEN h.sha256 <> v.sha256 THEN 'changed'
      WHEN v.inode <=> l.inode AND v.ctime_ns <=> l.ctime_ns AND v.mode = l.mode THEN 'unchanged'
      ELSE 'touched'
    END AS change
  FROM (SELECT * FROM snapshot_listed WHERE role <> 'folder') AS l
  FULL OUTER JOIN live AS v ON l.scope = v.scope AND l.region = v.region AND l.name = v.name
  LEFT JOIN snapshot_hashed AS h ON l.scope = h.scope AND l.region = h.region AND l.name = h.name
),
same AS (
  SELECT f.bytes, f.sha256, f.destination, f.path, f.position, f.codec, f.stored_bytes, f.key_id
  FROM (
    SELECT
      s.bytes, s.sha256, s.destination, s.path, s.position, s.codec, s.stored_bytes, s.key_id,
      ROW_NUMBER() OVER (PARTITION BY s.bytes, s.sha256 ORDER BY s.added_in DESC, s.path, s.position) AS place
    FROM snapshot_files AS s
    JOIN (SELECT DISTINCT sha256 FROM snapshot_hashed) AS w ON s.sha256 = w.sha256
    LEFT JOIN faults AS c ON s.destination = c.destination AND s.path = c.path
    WHERE s.source = :source AND s.stored AND c.path IS NULL AND :find_same AND NOT :copy_all
  ) AS f
  WHERE f.place = 1
),
folders AS (
  SELECT
    COALESCE(l.scope, v.scope) AS scope,
    COALESCE(l.region, v.region) AS region,
    COALESCE(l.name, v.name) AS name,
    l.folder, l.mtime_ns, l.mtime_ms, l.mode, l.links, l.device, l.inode, l.ctime_ns
  FROM (SELECT * FROM snapshot_listed WHERE role = 'folder') AS l
  FULL OUTER JOIN (
    SELECT d.scope, d.region, d.name, d.mode, d.mtime_ms
    FROM snapshot_folders AS d
    WHERE d.source = :source AND d.gone_in IS NULL
  ) AS v ON l.scope = v.scope AND l.region = v.region AND l.name = v.name
  WHERE COALESCE(l.mode <> v.mode OR l.mtime_ms <> v.mtime_ms, TRUE)
),
found AS (
  SELECT
    c.*,
    CASE WHEN c.change = 'touched' THEN c.stored_destination ELSE s.destination END AS same_destination,
    CASE WHEN c.change = 'touched' THEN c.stored_path ELSE s.path END AS same_path,
    CASE WHEN c.change = 'touched' THEN c.stored_position ELSE s.position END AS same_position,
    CASE WHEN c.change = 'touched' THEN c.stored_codec ELSE s.codec END AS same_codec,
    CASE WHEN c.change = 'touched' THEN c.stored_bytes ELSE s.stored_bytes END AS same_stored_bytes,
    CASE WHEN c.change = 'touched' THEN c.stored_key_id ELSE s.key_id END AS same_key_id,
    CASE
      WHEN c.change NOT IN ('gone', 'unchanged', 'touched') AND s.path IS NULL AND c.links > 1 THEN ''
      ELSE CONCAT(c.scope, '/', c.region, '/', c.name)
    END AS alone
  FROM compared AS c
  LEFT JOIN same AS s ON c.change IN ('new', 'changed', 'unlike') AND c.bytes = s.bytes AND c.sha256 = s.sha256
)
SELECT
  f.scope, f.region, f.name, f.role, f.folder, f.bytes, f.mtime_ns, f.mtime_ms, f.mode, f.links, f.device, f.inode,
  f.ctime_ns, f.added_in, f.change, f.same_destination, f.same_path, f.same_position, f.same_codec,
  f.same_stored_bytes, f.same_key_id,
  CASE WHEN f.same_path IS NOT NULL THEN f.sha256 END AS same_sha256,
  FIRST_VALUE(f.scope) OVER links AS first_scope,
  FIRST_VALUE(f.region) OVER links AS first_region,
  FIRST_VALUE(f.name) OVER links AS first_name
FROM found AS f
WINDOW links AS (PARTITION BY f.device, f.inode, f.bytes, f.mtime_ns, f.alone ORDER BY f.scope, f.region, f.name)
UNION ALL
SELECT
  d.scope, d.region, d.name,
  'folder' AS role,
  d.folder,
  CAST(0 AS BIGINT) AS bytes,
  d.mtime_ns, d.mtime_ms, d.mode, d.links, d.device, d.inode, d.ctime_ns,
  CAST(NULL AS BIGINT) AS added_in,
  'folder' AS change,
  CAST(NULL AS STRING) AS same_destination,
  CAST(NULL AS STRING) AS same_path,
  CAST(NULL AS BIGINT) AS same_position,
  CAST(NULL AS STRING) AS same_codec,
  CAST(NULL AS BIGINT) AS same_stored_bytes,
  CAST(NULL AS STRING) AS same_key_id,
  CAST(NULL AS STRING) AS same_sha256,
  d.scope AS first_scope,
  d.region AS first_region,
  -- No file has this name.
  CONCAT(d.name, '/') AS first_name
FROM folders AS d
