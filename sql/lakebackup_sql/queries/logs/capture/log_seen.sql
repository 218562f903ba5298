-- No start or commit ts that the log task :source has read so far is greater, whether it was kept or not.
SELECT MAX(max_ts) AS seen_ts FROM files WHERE source = :source AND format = 'log-regions'
