-- The files that hold the records of topic :scope, of which each gives the offsets below to_position. Without :to_ts
-- and :backup_id: all that usable backups hold, once: of each of the topic's histories (epoch) the newest generation,
-- of topics that are not compacted the older ones too, and of older chains and generations what lies before the newer
-- ones. With :to_ts: what a restore to that instant reads. With :backup_id: what that backup and the chain up to it
-- hold. The rest narrows it (null: all): timestamps, offsets and partitions from the least to the greatest, both in;
-- keys in hex likewise; only_null_keys: files with a record that has none; what backups after a number added; paths from
-- first_path on and before end_path.
WITH points AS (
  SELECT
    t.epoch, t.base, t.link, t.place, t.generation, t.settings,
    ROW_NUMBER() OVER (PARTITION BY t.epoch ORDER BY t.place DESC, t.number DESC) = 1 AS last
  FROM chain_points AS t
  WHERE t.source = :source
    AND t.scope = :scope
    AND (CAST(:backup_id AS STRING) IS NULL OR t.backup_id = :backup_id)
    AND (
      CAST(:to_ts AS BIGINT) IS NULL
      OR (t.covers_from < CAST(:to_ts AS BIGINT) AND CAST(:to_ts AS BIGINT) <= t.covers_to)
    )
),
chains AS (
  SELECT t.epoch, t.base, t.generation, MAX(t.link) AS link, MAX(t.place) AS place
  FROM points AS t
  JOIN points AS l
    ON t.epoch = l.epoch
    AND l.last
    AND (t.generation = l.generation OR NOT l.settings RLIKE '"cleanup.policy": "[^"]*compact')
  GROUP BY t.epoch, t.base, t.generation
),
newer AS (
  SELECT
    r.epoch, r.region, r.base, r.generation,
    MIN(r.start_position) OVER (
      PARTITION BY r.epoch, r.region ORDER BY r.place DESC, r.base DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS start_position
  FROM (
    SELECT p.epoch, p.region, c.base, c.generation, c.place, MIN(p.start_position) AS start_position
    FROM positions AS p
    JOIN scopes AS s ON p.backup_id = s.backup_id AND p.scope = s.scope AND p.epoch = s.epoch
    JOIN backups AS b ON p.backup_id = b.backup_id
    JOIN chains AS c
      ON p.epoch = c.epoch AND s.generation = c.generation AND b.base = c.base AND b.link <= c.link
      AND c.link < b.unlinked
    WHERE p.source = :source
      AND p.scope = :scope
    GROUP BY p.epoch, p.region, c.base, c.generation, c.place
  ) AS r
)
SELECT
  f.backup_id, f.source, f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format,
  f.codec, f.bytes, f.sha256, f.entries, f.null_keys, f.start_key, f.end_key, f.key_id, f.keys_path, f.keys_start,
  f.keys_blocks,
  LEAST(f.end_position, COALESCE(n.start_position, f.end_position)) AS to_position
FROM files AS f
JOIN backups AS b ON f.backup_id = b.backup_id
JOIN chains AS c
  ON f.epoch = c.epoch AND f.generation = c.generation AND b.base = c.base AND b.link <= c.link AND c.link < b.unlinked
LEFT JOIN newer AS n ON f.epoch = n.epoch AND f.region = n.region AND b.base = n.base AND f.generation = n.generation
WHERE f.source = :source
  AND f.scope = :scope
  AND f.role = 'data'
  AND b.state = 'complete'
  AND (n.start_position IS NULL OR f.start_position < n.start_position)
  AND (CAST(:to_ts AS BIGINT) IS NULL OR f.min_ts <= CAST(:to_ts AS BIGINT))
  AND (CAST(:least_ts AS BIGINT) IS NULL OR f.max_ts >= CAST(:least_ts AS BIGINT))
  AND (CAST(:greatest_ts AS BIGINT) IS NULL OR f.min_ts <= CAST(:greatest_ts AS BIGINT))
  AND (CAST(:least_position AS BIGINT) IS NULL OR f.end_position > CAST(:least_position AS BIGINT))
  AND (CAST(:greatest_position AS BIGINT) IS NULL OR f.start_position <= CAST(:greatest_position AS BIGINT))
  AND (CAST(:least_region AS BIGINT) IS NULL OR CAST(f.region AS BIGINT) >= CAST(:least_region AS BIGINT))
  AND (CAST(:greatest_region AS BIGINT) IS NULL OR CAST(f.region AS BIGINT) <= CAST(:greatest_region AS BIGINT))
  AND (
    CAST(:least_key AS STRING) IS NULL
    OR (
      f.entries > f.null_keys
      AND (f.start_key IS NULL OR f.start_key <= :greatest_key)
      AND (f.end_key IS NULL OR f.end_key >= :least_key)
    )
  )
  AND (NOT CAST(:only_null_keys AS BOOLEAN) OR f.null_keys > 0)
  AND (CAST(:after_number AS BIGINT) IS NULL OR b.number > CAST(:after_number AS BIGINT))
  AND (CAST(:first_path AS STRING) IS NULL OR f.path >= CAST(:first_path AS STRING))
  AND (CAST(:end_path AS STRING) IS NULL OR f.path < CAST(:end_path AS STRING))
ORDER BY f.epoch, CAST(f.region AS BIGINT), f.start_position, f.path
