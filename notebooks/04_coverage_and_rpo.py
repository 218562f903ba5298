# Databricks notebook source
# MAGIC %md
# MAGIC # Coverage and RPO
# MAGIC Which times every topic can be restored to, where the gaps are, and how far the newest restorable time is behind.
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
)

# COMMAND ----------

con = lakebackup.connect(asked.destination)

# COMMAND ----------

# MAGIC %md
# MAGIC How far behind each topic is, the worst first. A topic counts with its worst partition.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, scope, present, restorable_time, round(lag_ms / 60000, 1) AS lag_minutes, covered_time
FROM rpo
ORDER BY present DESC, lag_ms DESC
LIMIT 1000
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC The newest backup of each kind that can be restored.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, kind, backup_id, end_time, round(age_ms / 60000, 1) AS age_minutes, files, entries, bytes
FROM last_success
ORDER BY source, kind
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC Which times can be restored: a line a topic, those with gaps first; red is a gap, orange a fork. Internal topics are left out.

# COMMAND ----------

from lakebackup_jobs.query import charts

catalog = con.catalog()
catalog.define("uncounted", "report_uncounted", internal=False)
catalog.define("covered", "report_covered")
intervals = catalog.rows("report_intervals", topics=40, steps=400)
lines = [{**row, "line": f"{row['source']} / {row['scope']}"} for row in intervals]
notebook.show(charts.coverage(lines, "line"), "coverage")

# COMMAND ----------

# MAGIC %md
# MAGIC The gaps and forks themselves.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, scope, region, status, reason, from_time, to_time, from_position, to_position
FROM coverage
WHERE status <> 'restorable'
ORDER BY to_time DESC, source, scope, region
LIMIT 1000
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC How much of each topic's time is covered.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, scope,
  sum(CASE WHEN status = 'restorable' THEN to_ts - from_ts ELSE 0 END) / 3600000.0 AS restorable_hours,
  sum(CASE WHEN status = 'gap' THEN to_ts - from_ts ELSE 0 END) / 3600000.0 AS lost_hours
FROM coverage
WHERE from_ts IS NOT NULL
GROUP BY source, scope
ORDER BY lost_hours DESC, source, scope
LIMIT 1000
""")
)
