# Databricks notebook source
# MAGIC %md
# MAGIC # Restore by SELECT of records
# MAGIC A SELECT over `records('topic')` says which records come back and what is in them. A dry run counts and shows them first.
# MAGIC
# MAGIC It runs on Databricks, in Jupyter (`%run FILE destination=./backups`) and in plain Python (`python FILE destination=./backups`).
# MAGIC `destination` is the folder that the backups are kept in, such as a volume. The next cells install on Databricks what the
# MAGIC notebook needs beside the cluster's own Spark; skip them where the library is on the cluster.

# COMMAND ----------

# MAGIC %pip install --quiet --no-deps lakebackup

# COMMAND ----------

# MAGIC %pip install --quiet deltalake duckdb "sqlglot>=30,<31" tenacity fastavro cramjam "backports.zstd" confluent-kafka numba pydantic-settings rich

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import lakebackup
from lakebackup_jobs.query import notebook

asked = notebook.parameters(
    globals(),
    destination="/Volumes/main/default/backups",
    topic="orders",
    keys="k1",
    poison="0:0",
    target="delta:/Volumes/main/default/restored/orders-masked",
    really="no",
)

# COMMAND ----------

con = lakebackup.connect(asked.destination, engine=globals().get("spark", "duckdb"))

# COMMAND ----------

# MAGIC %md
# MAGIC Only the keys that begin with `keys`, without the message at `poison` (partition:offset); the amount in each value is masked, and
# MAGIC each key gets a prefix. `headers` and `ts` stay as they were. Into Kafka add `repartition=True` below: a new key belongs to another partition.

# COMMAND ----------

partition, offset = map(int, asked.poison.split(":"))
keys = asked.keys.replace("'", "''")
select = f"""
SELECT partition, concat('eu-', key) AS key, regexp_replace(value, r'"amount": *[0-9]+', '"amount": 0') AS value, headers, ts
FROM records('{asked.topic}')
WHERE key LIKE '{keys}%' AND NOT (partition = {partition} AND kafka_offset = {offset})
"""

# COMMAND ----------

# MAGIC %md
# MAGIC The dry run computes the SELECT and writes nothing: how many records and bytes each partition gets, how many it holds and how many are left
# MAGIC out, and the first records.

# COMMAND ----------

plan = con.plan_restore(to=asked.target, records=select)
print(
    f"{plan.details['records']:,} records, {plan.details['record_bytes']:,} bytes; order: {plan.details['order']}"
)
for row in [*plan.details["partitions"], *plan.details["sample"]]:
    print(row)
print(plan.refused or "It can be carried out.", plan.hint)

# COMMAND ----------

# MAGIC %md
# MAGIC Set `really` to `yes` to carry it out. The same call resumes a restore that was interrupted.

# COMMAND ----------

done = None
if asked.really == "yes":
    done = con.restore(to=asked.target, records=select)
print(done or "Nothing was restored.")
