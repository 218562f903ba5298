-- The least and the greatest path that a user's SELECT chose (relation chosen) and that is not among the files to restore
-- (relation selected); null: all are.
SELECT MIN(c.path) AS first_path, MAX(c.path) AS last_path
FROM chosen AS c
LEFT ANTI JOIN selected AS s ON c.path = s.path
