-- How many rows a user's SELECT returned (relation chosen).
SELECT COUNT(*) AS rows_chosen
FROM chosen AS c
