# %% [markdown]
# # Restore topics by SELECT
# A SELECT chooses the files or the records that come back. A plan shows what a restore would do and writes nothing.
#
# `LAKEBACKUP_REPO` names the folder or `s3://` URI that has the backups; `lakebackup.toml` is read too.

# %% tags=["parameters"]
topic = "orders"
target = "delta:./restored/orders"  # or kafka://HOST:PORT, or dir:PATH
key_prefix = "customer-"
masked_target = "delta:./restored/orders-masked"
really_restore = False

# %%
import lakebackup

# %load_ext lakebackup
con = lakebackup.connect(
    engine=globals().get("spark", "duckdb")
)  # a Spark session of the notebook runs restores

# %% [markdown]
# The restore points of the topic: each answers for the times from the one before it up to its own.

# %% language="sql"
# SELECT backup_id, number, kind, regions, generation, covers_to
# FROM restore_points
# WHERE scope = :topic
# ORDER BY number DESC
# LIMIT 100

# %% [markdown]
# ## Files
# Any query that returns `destination` and `path` of rows of `files` chooses what is restored. This one takes the files of
# the topic's newest restore point.

# %%
files = f"""
SELECT f.destination, f.path
FROM files AS f
JOIN backups AS b ON f.backup_id = b.backup_id
JOIN restore_points AS p
  ON f.source = p.source AND f.scope = p.scope AND f.epoch = p.epoch AND f.generation = p.generation
  AND b.base = p.base AND b.number <= p.number
WHERE p.newest AND f.scope = '{topic}'
"""
plan = con.plan_restore(to=target, select=files)
plan

# %% [markdown]
# `really_restore = True` above carries it out. The same call resumes a restore that was interrupted.

# %%
done = con.restore(to=target, select=files) if really_restore else None
done

# %% [markdown]
# ## Records
# A SELECT over `records('topic')` says which records come back and what is in them; it runs on Spark. This one takes the keys
# that begin with `key_prefix`, and masks the amount in each value. Headers and times stay as they were.

# %%
records = f"""
SELECT partition, key, regexp_replace(value, r'"amount": *[0-9]+', '"amount": 0') AS value, headers, ts
FROM records('{topic}')
WHERE key LIKE '{key_prefix}%'
"""
con.sql(records)

# %%
masked = con.restore(to=masked_target, records=records) if really_restore else None
masked
