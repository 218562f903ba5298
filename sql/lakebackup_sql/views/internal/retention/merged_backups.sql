-- One row per backup whose contents a merge holds too, so that nothing needs the backup any more. These are the backups
-- that the merge was created from, and those that these were created from. The merge must cover each of their topics:
-- it lacks earlier generations, and topics that its last backup did not hold.
-- merged_into: the newest merge that covers all its topics
WITH broken AS (
  SELECT DISTINCT backup_id FROM faults WHERE mode <> 'keys'
),
candidates AS (
  SELECT b.backup_id, m.backup_id AS merge_id, m.number
  FROM backups AS m
  JOIN backups AS l ON m.source = l.source AND m.place = l.place AND l.number < m.number
  JOIN backups AS b
    ON l.source = b.source AND l.base = b.base AND b.link <= l.link AND l.link < b.unlinked
    AND b.place > COALESCE(m.parent_place, 0)
  -- A backup that a cumulative one skips is in no merge of the cumulative, even if a prune deleted the cumulative.
  LEFT ANTI JOIN backups AS t
    ON b.source = t.source AND b.base = t.base AND t.number = t.place AND t.state IN ('complete', 'deleted')
    AND t.parent_place < b.place AND b.place < t.place AND t.place <= l.place
  WHERE m.number > m.place
    AND m.state = 'complete'
    AND m.intact
    AND NOT EXISTS (SELECT 1 FROM broken AS f WHERE f.backup_id = m.backup_id)
),
covering AS (
  SELECT d.backup_id, d.merge_id, d.number
  FROM candidates AS d
  LEFT JOIN chain_points AS t ON d.backup_id = t.backup_id
  LEFT JOIN raw_scopes AS s
    ON d.merge_id = s.backup_id AND t.scope = s.scope AND t.epoch = s.epoch AND t.generation = s.generation
  GROUP BY d.backup_id, d.merge_id, d.number
  HAVING COUNT(t.scope) = COUNT(s.scope)
)
SELECT c.backup_id, MAX_BY(c.merge_id, c.number) AS merged_into
FROM covering AS c
GROUP BY c.backup_id
