-- Each full with the backups that depend on it, a row for each branch. Backups that went out of sync stay in the row of
-- the branch that they were in. Logs of other programs are in no chain.
-- branch: 0: that of the full itself
-- backups: how many they are
-- first_number: number of the first of them
-- last_number: number of the newest
-- full_end_ts: end_ts of the full
-- restorable_end_ts: end_ts of the newest that can be restored; null: none can
-- files: data files they wrote
-- bytes: size of these files
-- entries: their records
-- intact: true: all of them can be restored
-- full_end_time: full_end_ts, in UTC; null: another unit than ms
-- restorable_end_time: restorable_end_ts, in UTC; null: none, or another unit than ms
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
