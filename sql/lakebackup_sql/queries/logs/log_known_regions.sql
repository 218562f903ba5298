-- How far each region of the change feed :source was, as its backups told.
SELECT region, store, resolved_ts, closed, successors FROM log_regions WHERE source = :source
