# %% [markdown]
# # Query the records inside the backups
# `records('topic')` is the records in the backups of a topic, as a relation. Nothing is restored: only files that can hold
# the answer are opened, and each is verified first.
#
# `LAKEBACKUP_REPO` names the folder or `s3://` URI that has the backups; `lakebackup.toml` is read too.

# %% tags=["parameters"]
topic = "orders"
key = "customer-7"

# %%
import lakebackup

# %load_ext lakebackup
con = lakebackup.connect()

# %% [markdown]
# All that was ever written under one key, with the file and the backup that hold it.

# %% magic_args="history <<" language="sql"
# SELECT partition, kafka_offset, time, key, value, backup_id, path
# FROM records(:topic)
# WHERE key = :key
# ORDER BY partition, kafka_offset

# %%
history

# %% [markdown]
# How many records each partition has, and from when to when.

# %% language="sql"
# SELECT partition, count(*) AS records, min(kafka_offset) AS first_offset, max(kafka_offset) AS last_offset,
#   min(time) AS from_time, max(time) AS to_time
# FROM records(:topic)
# GROUP BY partition
# ORDER BY partition

# %% [markdown]
# The latest record of each key: what a compacted topic would hold. A record without a value deletes its key.

# %% language="sql"
# SELECT key, value, time
# FROM (
#   SELECT key, value, time, row_number() OVER (PARTITION BY key ORDER BY partition, kafka_offset DESC) AS age
#   FROM records(:topic)
#   WHERE key IS NOT NULL
# ) AS r
# WHERE age = 1 AND value IS NOT NULL
# ORDER BY key
# LIMIT 1000
