# %% [markdown]
# # Retention
# Which backups the policies keep and why, whether the schedules are met, and what was deleted.
#
# `LAKEBACKUP_REPO` names the folder or `s3://` URI that has the backups; `lakebackup.toml` is read too.

# %%
import lakebackup

# %load_ext lakebackup
con = lakebackup.connect()

# %% language="sql"
# SELECT source, full_schedule, incremental_schedule, window_days, redundancy, min_redundancy, actor, time
# FROM policies
# ORDER BY source

# %% [markdown]
# What becomes of the backups, and what `lakebackup prune --delete` would free.

# %% language="sql"
# SELECT source, status, reason, count(*) AS backups, sum(files) AS files, sum(bytes) AS bytes,
#   min(end_time) AS oldest, max(end_time) AS newest
# FROM obsolete_backups
# GROUP BY source, status, reason
# ORDER BY source, status, reason

# %% language="sql"
# SELECT o.source, o.number, o.backup_id, o.kind, o.level, o.end_time, o.status, o.reason, o.because_of,
#   h.reason AS held_because, h.until_time
# FROM obsolete_backups AS o
# LEFT JOIN holds AS h
#   ON o.backup_id = h.backup_id
# ORDER BY o.source, o.number DESC
# LIMIT 1000

# %% [markdown]
# Runs that should have been, and what would be lost now.

# %% language="sql"
# SELECT source, run, schedule, last_time, missed, round(lag_ms / 60000) AS lag_minutes,
#   lag_ms > every_ms AS more_than_promised
# FROM missed_runs
# ORDER BY missed DESC, source, run

# %% [markdown]
# What prunes deleted, by reason.

# %% language="sql"
# SELECT source, prune_id, time, reason, sum(coalesce(files, 1)) AS files, sum(bytes) AS bytes
# FROM removals
# GROUP BY source, prune_id, time, reason
# ORDER BY time DESC
# LIMIT 1000
