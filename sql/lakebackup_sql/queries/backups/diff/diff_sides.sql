-- The data files that only one of two backups has, :a and :b (in_a, in_b). Of a topic, a backup has what it and those it
-- needs wrote of the topic's generation; of other sources, what came by then and had not gone. Only rows in these ranges
-- of numbers can differ: those added in [:from_number, :to_number], and older ones that went in (:low, :high].
WITH candidates AS (
  SELECT
    f.destination, f.path, f.scope, f.epoch, f.region, f.generation, f.bytes, f.entries, f.sha256, f.added_in, d.gone_in
  FROM files AS f
  LEFT JOIN (
    SELECT destination, path, added_in, gone_in
    FROM departures
    WHERE source = :source AND added_in BETWEEN :from_number AND :to_number AND gone_in <= :high
  ) AS d ON f.destination = d.destination AND f.path = d.path AND f.added_in = d.added_in
  WHERE f.source = :source
    AND f.added_in BETWEEN :from_number AND :to_number
  UNION ALL
  SELECT destination, path, scope, epoch, region, 0 AS generation, bytes, entries, sha256, added_in, gone_in
  FROM departures
  WHERE source = :source
    AND added_in < :from_number
    AND gone_in > :low
    AND gone_in <= :high
),
members AS (
  SELECT
    c.*,
    (b.state = 'complete' OR :a_state = 'out_of_sync') AND CASE
      WHEN :topics THEN COALESCE(s.in_a, FALSE) AND b.base = :a_base AND :a_link BETWEEN b.link AND b.unlinked - 1
      ELSE c.added_in <= :a_number AND COALESCE(c.gone_in > :a_number, TRUE)
    END AS in_a,
    (b.state = 'complete' OR :b_state = 'out_of_sync') AND CASE
      WHEN :topics THEN COALESCE(s.in_b, FALSE) AND b.base = :b_base AND :b_link BETWEEN b.link AND b.unlinked - 1
      ELSE c.added_in <= :b_number AND COALESCE(c.gone_in > :b_number, TRUE)
    END AS in_b
  FROM candidates AS c
  JOIN (SELECT number, state, base, link, unlinked FROM backups WHERE source = :source) AS b ON c.added_in = b.number
  LEFT JOIN (
    SELECT scope, epoch, generation, MAX(backup_id = :a) AS in_a, MAX(backup_id = :b) AS in_b
    FROM scopes
    WHERE backup_id IN (:a, :b)
    GROUP BY scope, epoch, generation
  ) AS s ON c.scope = s.scope AND c.epoch = s.epoch AND c.generation = s.generation
)
SELECT destination, path, scope, region, bytes, entries, sha256, in_a, in_b FROM members WHERE in_a <> in_b
