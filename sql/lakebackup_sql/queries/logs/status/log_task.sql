-- What the log task :source is to do, as its job asks again and again: no table but one is read.
SELECT source, state, at, actor, settings, detail FROM log_tasks WHERE source = :source
