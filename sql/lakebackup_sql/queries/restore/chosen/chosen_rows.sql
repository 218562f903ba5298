-- How many rows a user's SELECT returned (relation chosen), and the least and the greatest path of them: with these, an
-- engine need not look at the files of all other topics.
SELECT COUNT(*) AS rows_chosen, MIN(c.path) AS first_path, MAX(c.path) AS last_path
FROM chosen AS c
