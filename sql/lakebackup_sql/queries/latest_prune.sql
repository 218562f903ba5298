-- When a source was last pruned; NULL: never.
SELECT MAX(f.at) AS at
FROM floors AS f
WHERE f.source = :source
