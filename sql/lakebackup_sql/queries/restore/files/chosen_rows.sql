-- How many rows a person's SELECT gave (relation chosen).
SELECT COUNT(*) AS rows_chosen
FROM chosen AS c
