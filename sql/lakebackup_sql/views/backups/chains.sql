-- One row per chain and branch: how many backups it has, how large they are, and up to when it can be restored. A chain
-- is a full with the backups that depend on it. A backup that went out of sync stays in the row of its branch. Logs of
-- other programs belong to no chain.
-- branch: number of the branch; 0: the branch of the full itself
-- backups: number of backups
-- first_number: number of the first backup
-- last_number: number of the newest backup
-- full_end_ts: end_ts of the full
-- restorable_end_ts: end_ts of the newest backup that can be restored; null: none can
-- files: number of data files that the backups wrote
-- bytes: size of these files
-- entries: number of records in these files
-- intact: true: all of the backups can be restored
-- full_end_time: full_end_ts, in UTC; null: its unit is neither ms nor tso
-- restorable_end_time: restorable_end_ts, in UTC; null: no restorable_end_ts, or its unit is neither ms nor tso
SELECT
  source, base, branch,
  count(*) AS backups,
  min(number) AS first_number,
  max(number) AS last_number,
  min(min(end_ts)) OVER (PARTITION BY source, base) AS full_end_ts,
  max(CASE WHEN state = 'complete' AND intact THEN end_ts END) AS restorable_end_ts,
  CAST(sum(files) AS BIGINT) AS files,
  CAST(sum(bytes) AS BIGINT) AS bytes,
  CAST(sum(entries) AS BIGINT) AS entries,
  min(CASE WHEN state = 'complete' AND intact THEN 1 ELSE 0 END) = 1 AS intact,
  min(min(end_time)) OVER (PARTITION BY source, base) AS full_end_time,
  max(CASE WHEN state = 'complete' AND intact THEN end_time END) AS restorable_end_time
FROM backups
LEFT JOIN (SELECT source_kind AS own_kind FROM own_kinds) AS k ON source_kind = k.own_kind
WHERE kind <> 'log' OR k.own_kind IS NOT NULL
GROUP BY source, base, branch
