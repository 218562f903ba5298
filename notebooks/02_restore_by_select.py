# Databricks notebook source
# MAGIC %md
# MAGIC # Restore by SELECT
# MAGIC A SELECT chooses the files, a dry run tells what would come back, and the same request brings it back.
# MAGIC
# MAGIC `destination` is the folder that the backups are kept in, such as a volume. The next cells install what the
# MAGIC notebook needs beside the cluster's own Spark; skip them where the library is on the cluster.

# COMMAND ----------

# MAGIC %pip install --quiet --no-deps lakebackup

# COMMAND ----------

# MAGIC %pip install --quiet altair vl-convert-python deltalake duckdb "sqlglot>=30,<31" tenacity fastavro cramjam "backports.zstd" confluent-kafka numba pydantic-settings rich

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

dbutils.widgets.text("destination", "/Volumes/main/default/backups", "Where the backups are kept")
dbutils.widgets.text("topic", "orders", "Topic")
dbutils.widgets.text("target", "delta:/Volumes/main/default/restored/orders", "Restore to")
dbutils.widgets.text("as_topic", "", "Under another name")
dbutils.widgets.dropdown("really", "no", ["no", "yes"], "Carry it out")

# COMMAND ----------

import lakebackup

con = lakebackup.connect(dbutils.widgets.get("destination"), engine=spark)
con.register("files", "backups", "restore_points")

# COMMAND ----------

# MAGIC %md
# MAGIC The restore points of the topic: each answers for the times from the one before it up to its own.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT backup_id, number, kind, regions, generation, covers_to
# MAGIC FROM restore_points
# MAGIC WHERE scope = :topic
# MAGIC ORDER BY number DESC
# MAGIC LIMIT 100

# COMMAND ----------

# MAGIC %md
# MAGIC Any query that gives the columns `destination` and `path` of rows of `files` chooses what is restored. This one takes what
# MAGIC the newest restore point of the topic stands on.

# COMMAND ----------

topic = dbutils.widgets.get("topic")
select = f"""
SELECT f.destination, f.path, f.region, f.start_position, f.end_position, f.entries, f.bytes, f.min_time, f.max_time
FROM files AS f
JOIN backups AS b ON f.backup_id = b.backup_id
JOIN restore_points AS p
  ON f.source = p.source AND f.scope = p.scope AND f.epoch = p.epoch AND f.generation = p.generation
  AND b.base = p.base AND b.number <= p.number
WHERE p.newest AND f.scope = '{topic}'
"""
display(con.sql(f"SELECT * FROM ({select}) AS chosen ORDER BY region, start_position LIMIT 1000").spark())

# COMMAND ----------

# MAGIC %md
# MAGIC The dry run writes nothing. It says how much would come back and what stands against it.

# COMMAND ----------

asked = {
    "to": dbutils.widgets.get("target"),
    "select": select,
    "maps": {topic: dbutils.widgets.get("as_topic") or topic},
}
plan = con.plan_restore(**asked)
plan

# COMMAND ----------

# MAGIC %md
# MAGIC Set the widget `really` to `yes` to carry it out.

# COMMAND ----------

done = None
if dbutils.widgets.get("really") == "yes":
    done = con.restore(**asked)
done
