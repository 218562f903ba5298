-- The state that the log task :source should be in. Its job polls this, so only one table is read.
SELECT source, state, at, actor, settings, detail FROM log_tasks WHERE source = :source
