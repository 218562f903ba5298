# Databricks notebook source
# MAGIC %md
# MAGIC # Restore by SELECT
# MAGIC A SELECT chooses the files, a dry run tells what would come back, and the same request brings it back.
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
    target="delta:/Volumes/main/default/restored/orders",
    as_topic="",
    really="no",
)

# COMMAND ----------

con = lakebackup.connect(asked.destination, engine=globals().get("spark", "duckdb"))

# COMMAND ----------

# MAGIC %md
# MAGIC The restore points of the topic: each answers for the times from the one before it up to its own.

# COMMAND ----------

notebook.show(
    con.sql(f"""
SELECT backup_id, number, kind, regions, generation, covers_to
FROM restore_points
WHERE scope = '{asked.topic}'
ORDER BY number DESC
LIMIT 100
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC Any query that gives the columns `destination` and `path` of rows of `files` chooses what is restored. This one takes what
# MAGIC the newest restore point of the topic stands on.

# COMMAND ----------

select = f"""
SELECT f.destination, f.path, f.region, f.start_position, f.end_position, f.entries, f.bytes, f.min_time, f.max_time
FROM files AS f
JOIN backups AS b ON f.backup_id = b.backup_id
JOIN restore_points AS p
  ON f.source = p.source AND f.scope = p.scope AND f.epoch = p.epoch AND f.generation = p.generation
  AND b.base = p.base AND b.number <= p.number
WHERE p.newest AND f.scope = '{asked.topic}'
"""
notebook.show(con.sql(f"SELECT * FROM ({select}) AS chosen ORDER BY region, start_position LIMIT 1000"))

# COMMAND ----------

# MAGIC %md
# MAGIC The dry run writes nothing. It says how much would come back and what stands against it.

# COMMAND ----------

restore = {
    "to": asked.target,
    "select": select,
    "maps": {asked.topic: asked.as_topic or asked.topic},
}
plan = con.plan_restore(**restore)
print(f"{plan.files} files, {plan.bytes:,} bytes, {plan.entries:,} records")
print(plan.refused or "It can be carried out.", plan.hint)

# COMMAND ----------

# MAGIC %md
# MAGIC Set `really` to `yes` to carry it out.

# COMMAND ----------

done = None
if asked.really == "yes":
    done = con.restore(**restore)
print(done or "Nothing was restored.")
