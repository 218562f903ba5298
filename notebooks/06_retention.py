# Databricks notebook source
# MAGIC %md
# MAGIC # Retention
# MAGIC What the policies keep and let go of, and why; whether the schedules are kept; what was deleted.
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

# COMMAND ----------

import lakebackup

con = lakebackup.connect(dbutils.widgets.get("destination"), engine=spark)
con.register("policies", "holds", "missed_runs", "obsolete_backups", "removals", "audit")

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, full_schedule, incremental_schedule, window_days, redundancy, min_redundancy, actor, time
# MAGIC FROM policies
# MAGIC ORDER BY source

# COMMAND ----------

# MAGIC %md
# MAGIC What becomes of the backups, and what `lakebackup prune --delete` would free.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, status, reason, count(*) AS backups, sum(files) AS files, sum(bytes) AS bytes,
# MAGIC   min(end_time) AS oldest, max(end_time) AS newest
# MAGIC FROM obsolete_backups
# MAGIC GROUP BY source, status, reason
# MAGIC ORDER BY source, status, reason

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT o.source, o.number, o.backup_id, o.kind, o.level, o.end_time, o.status, o.reason, o.because_of,
# MAGIC   h.reason AS held_because, h.until_time
# MAGIC FROM obsolete_backups AS o
# MAGIC LEFT JOIN holds AS h
# MAGIC   ON o.backup_id = h.backup_id
# MAGIC ORDER BY o.source, o.number DESC
# MAGIC LIMIT 1000

# COMMAND ----------

# MAGIC %md
# MAGIC Runs that should have been, and what would be lost now.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, run, schedule, last_time, missed, round(lag_ms / 60000) AS lag_minutes,
# MAGIC   lag_ms > every_ms AS more_than_promised
# MAGIC FROM missed_runs
# MAGIC ORDER BY missed DESC, source, run

# COMMAND ----------

# MAGIC %md
# MAGIC What prunes took away, by reason.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, prune_id, time, reason, sum(coalesce(files, 1)) AS files, sum(bytes) AS bytes
# MAGIC FROM removals
# MAGIC GROUP BY source, prune_id, time, reason
# MAGIC ORDER BY time DESC
# MAGIC LIMIT 1000
