-- When a source was last pruned (NULL: never), and how many of its backups were deleted.
SELECT
  (SELECT MAX(f.at) FROM floors AS f WHERE f.source = :source) AS at,
  (SELECT COUNT(*) FROM raw_backups AS b WHERE b.source = :source AND b.state = 'deleted') AS deleted
