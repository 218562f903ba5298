# %% [markdown]
# # Coverage and RPO
# Which times every topic can be restored to, where the gaps are, and how old the newest restorable state is.
#
# `LAKEBACKUP_REPO` names the folder or `s3://` URI that has the backups; `lakebackup.toml` is read too.

# %%
import lakebackup

# %load_ext lakebackup
con = lakebackup.connect()

# %% [markdown]
# How far behind each topic is, the worst first. A topic counts with its worst partition.

# %% language="sql"
# SELECT source, scope, present, restorable_time, round(lag_ms / 60000, 1) AS lag_minutes, covered_time
# FROM rpo
# ORDER BY present DESC, lag_ms DESC
# LIMIT 1000

# %% [markdown]
# The newest backup of each kind that can be restored.

# %% language="sql"
# SELECT source, kind, backup_id, end_time, round(age_ms / 60000, 1) AS age_minutes, files, entries, bytes
# FROM last_success
# ORDER BY source, kind

# %% [markdown]
# Which times can be restored: a line a topic, those with gaps first; red is a gap, orange a fork.

# %%
con.chart("coverage")

# %% [markdown]
# The gaps and forks themselves.

# %% language="sql"
# SELECT source, scope, region, status, reason, from_time, to_time, from_position, to_position
# FROM coverage
# WHERE status <> 'restorable'
# ORDER BY to_time DESC, source, scope, region
# LIMIT 1000

# %% [markdown]
# How much of each topic's time is covered.

# %% language="sql"
# SELECT source, scope,
#   sum(CASE WHEN status = 'restorable' THEN to_ts - from_ts ELSE 0 END) / 3600000.0 AS restorable_hours,
#   sum(CASE WHEN status = 'gap' THEN to_ts - from_ts ELSE 0 END) / 3600000.0 AS lost_hours
# FROM coverage
# WHERE from_ts IS NOT NULL
# GROUP BY source, scope
# ORDER BY lost_hours DESC, source, scope
# LIMIT 1000
