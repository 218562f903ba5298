-- Partitions of the topics :targets (see restored_until) that earlier restores brought to before the end of the first
-- backup, backup_id, of the generation that is restored now (to :to_ts; null: the newest). read_ts: until when that one
-- read (a compaction reads what the backup that it is made from had read); known_ts: the end of the last backup of which
-- nothing is missing there, null: none is known. What the source deleted between the two may have left no trace.
WITH restored AS (
  SELECT t.scope, t.epoch, t.region, MAX(t.to_position) AS position
  FROM translations AS t
  WHERE t.source = :source
    AND t.cluster = :cluster
    AND ARRAY_CONTAINS(SPLIT(:targets, ','), CONCAT(t.scope, '=', t.target_epoch))
    AND (CAST(:restore_id AS STRING) IS NULL OR t.restore_id <> CAST(:restore_id AS STRING))
  GROUP BY t.scope, t.epoch, t.region
),
taken AS (
  SELECT
    p.scope, p.epoch, p.region, p.end_position, s.generation, b.backup_id, b.number, b.state, b.end_ts, b.finished_at,
    MIN(b.number) OVER (PARTITION BY p.scope, p.epoch, p.region, b.end_ts) < b.number AS derived
  FROM raw_positions AS p
  JOIN raw_scopes AS s ON p.backup_id = s.backup_id AND p.scope = s.scope AND p.epoch = s.epoch
  JOIN raw_backups AS b ON p.backup_id = b.backup_id
  WHERE p.source = :source AND s.source = :source
),
known AS (
  SELECT r.scope, r.epoch, r.region, r.position, MAX(t.end_ts) AS known_ts
  FROM restored AS r
  LEFT JOIN taken AS t
    ON r.scope = t.scope AND r.epoch = t.epoch AND r.region = t.region AND t.end_position <= r.position
    AND t.state <> 'out_of_sync'
  GROUP BY r.scope, r.epoch, r.region, r.position
),
began AS (
  SELECT
    t.scope, t.epoch, t.region, t.end_position, t.backup_id,
    CASE WHEN t.derived THEN t.end_ts ELSE CAST(FLOOR(t.finished_at / 1000) AS BIGINT) END AS read_ts,
    ROW_NUMBER() OVER (PARTITION BY t.scope, t.epoch, t.region ORDER BY t.number) AS nth
  FROM taken AS t
  JOIN chain_points AS o ON t.scope = o.scope AND t.epoch = o.epoch AND t.generation = o.generation
  WHERE o.source = :source
    AND CASE
      WHEN CAST(:to_ts AS BIGINT) IS NULL THEN o.newest
      ELSE :to_ts > o.covers_from AND :to_ts <= o.covers_to
    END
)
SELECT k.scope, k.region, g.backup_id, g.read_ts, k.known_ts
FROM known AS k
JOIN began AS g ON k.scope = g.scope AND k.epoch = g.epoch AND k.region = g.region AND g.nth = 1
WHERE k.position < g.end_position
ORDER BY k.scope, CAST(k.region AS BIGINT)
