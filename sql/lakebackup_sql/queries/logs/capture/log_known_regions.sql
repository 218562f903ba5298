-- How far each region of the change feed :source has been read, by its backups.
SELECT region, store, resolved_ts, closed, successors FROM log_regions WHERE source = :source
