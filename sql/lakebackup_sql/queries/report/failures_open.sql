-- When the last run :run of the source :source ended in an error; no row when one has ended well since.
SELECT MAX(f.at) AS at
FROM raw_failures AS f
WHERE f.source = :source AND f.run = :run
HAVING MAX_BY(f.exit_code, f.at) <> 0
