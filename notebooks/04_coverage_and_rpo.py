# Databricks notebook source
# MAGIC %md
# MAGIC # Coverage and RPO
# MAGIC Which times every topic can be restored to, where the gaps are, and how far the newest restorable time is behind.
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
con.register("coverage", "rpo", "last_success", "unusable_backups")

# COMMAND ----------

# MAGIC %md
# MAGIC How far behind each topic is, the worst first. A topic counts with its worst partition.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, scope, present, restorable_time, round(lag_ms / 60000, 1) AS lag_minutes, covered_time
# MAGIC FROM rpo
# MAGIC ORDER BY present DESC, lag_ms DESC
# MAGIC LIMIT 1000

# COMMAND ----------

# MAGIC %md
# MAGIC The newest backup of each kind that can be restored.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, kind, backup_id, end_time, round(age_ms / 60000, 1) AS age_minutes, files, entries, bytes
# MAGIC FROM last_success
# MAGIC ORDER BY source, kind

# COMMAND ----------

# MAGIC %md
# MAGIC Which times can be restored: a line a topic, those with gaps first; red is a gap, orange a fork.

# COMMAND ----------

from lakebackup_jobs.query import charts

catalog = con.catalog()
catalog.define("covered", "report_covered")
intervals = catalog.rows("report_intervals", topics=40, steps=400)
for source in sorted({row["source"] for row in intervals}):
    of = [row for row in intervals if row["source"] == source]
    displayHTML(f"<h4>{source}</h4>" + charts.to_svg(charts.coverage(of)))

# COMMAND ----------

# MAGIC %md
# MAGIC The gaps and forks themselves.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, scope, region, status, reason, from_time, to_time, from_position, to_position
# MAGIC FROM coverage
# MAGIC WHERE status <> 'restorable'
# MAGIC ORDER BY to_time DESC, source, scope, region
# MAGIC LIMIT 1000

# COMMAND ----------

# MAGIC %md
# MAGIC How much of each topic's time is covered.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, scope,
# MAGIC   sum(CASE WHEN status = 'restorable' THEN to_ts - from_ts ELSE 0 END) / 3600000.0 AS restorable_hours,
# MAGIC   sum(CASE WHEN status = 'gap' THEN to_ts - from_ts ELSE 0 END) / 3600000.0 AS lost_hours
# MAGIC FROM coverage
# MAGIC WHERE from_ts IS NOT NULL
# MAGIC GROUP BY source, scope
# MAGIC ORDER BY lost_hours DESC, source, scope
# MAGIC LIMIT 1000
