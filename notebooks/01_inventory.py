# %% [markdown]
# # Inventory and growth
# Which backups there are, whether they can be restored, and how much is stored.
#
# `LAKEBACKUP_REPO` names the folder or `s3://` URI that has the backups; `lakebackup.toml` is read too.

# %% tags=["parameters"]
capacity = 1_000_000_000_000  # bytes that the storage has room for

# %%
import lakebackup

# %load_ext lakebackup
con = lakebackup.connect()

# %% [markdown]
# Every backup is one row. `intact` means that its whole chain is there, so that it can be restored.

# %% language="sql"
# SELECT source, number, backup_id, kind, state, intact, end_time, files, entries, bytes
# FROM backups
# ORDER BY source, number DESC
# LIMIT 1000

# %% [markdown]
# Each full backup and the backups that build on it.

# %% language="sql"
# SELECT source, base, backups, first_number, last_number, files, entries, bytes, intact
# FROM chains
# ORDER BY source, last_number DESC
# LIMIT 1000

# %% [markdown]
# When backups ran in the last 91 days: a cell a day, red where a backup cannot be restored, hollow where the policy had a
# run due and none came.

# %%
con.chart("calendar")

# %% [markdown]
# Backups that cannot be used, or not with all their topics, and the file that is at fault.

# %% language="sql"
# SELECT source, backup_id, reason, fault_backup_id, faults, path, detail, found_time
# FROM unusable_backups
# ORDER BY source, number DESC
# LIMIT 1000

# %% [markdown]
# What each source stores where, and what prunes deleted.

# %% language="sql"
# SELECT source, destination, backups, files, entries, bytes, raw_bytes, oldest_time, newest_time, pruned_bytes
# FROM storage_by_source
# ORDER BY bytes DESC

# %% [markdown]
# The largest topics and tables.

# %% language="sql"
# SELECT source, scope, count(*) AS files, sum(entries) AS records, sum(bytes) AS bytes, min(min_time) AS from_time,
#   max(max_time) AS to_time
# FROM files
# GROUP BY source, scope
# ORDER BY bytes DESC
# LIMIT 100

# %% [markdown]
# Above what is stored, by source; below what backups added and prunes deleted.

# %%
con.chart("growth")

# %% language="sql"
# SELECT source, day, backups, new_files, new_bytes, referenced_bytes, removed_bytes, held_bytes
# FROM growth
# ORDER BY day DESC, source
# LIMIT 1000

# %% [markdown]
# How long `capacity` lasts at the pace of the last thirty days.

# %% language="sql"
# SELECT source, held_bytes, added_bytes, round(30 * (:capacity - held_bytes) / added_bytes) AS days_left
# FROM (
#   SELECT source, max_by(held_bytes, day) AS held_bytes, sum(new_bytes - removed_bytes) AS added_bytes
#   FROM growth
#   WHERE day >= current_date() - INTERVAL 30 DAYS
#   GROUP BY source
# ) AS pace
# WHERE added_bytes > 0
