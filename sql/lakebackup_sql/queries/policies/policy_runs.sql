-- Each run that a policy schedules, the newest backup that counts as one, and what the next is to be.
SELECT m.source, m.run, m.schedule, m.backup_id, m.last_ts, m.missed, m.lag_ms, p.incremental_kind, p.level,
  p.patterns, p.time_zone, p.command, k.source_kind
FROM missed_runs AS m
JOIN policies AS p ON m.source = p.source
LEFT JOIN (SELECT source, MAX(source_kind) AS source_kind FROM raw_backups GROUP BY source) AS k ON m.source = k.source
WHERE CAST(:source AS STRING) IS NULL OR m.source = :source
ORDER BY m.source, m.run
