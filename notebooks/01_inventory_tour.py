# Databricks notebook source
# MAGIC %md
# MAGIC # Inventory: what is there
# MAGIC A tour of the catalog: backups, chains, topics, files, and what verify last saw of them.
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
# MAGIC Every backup is one row. `intact` means that its whole chain is there, so that it can be restored.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, number, backup_id, kind, state, intact, end_time, files, entries, bytes
FROM backups
ORDER BY source, number DESC
LIMIT 1000
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC Each full and what stands on it.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, base, backups, first_number, last_number, files, entries, bytes, intact
FROM chains
ORDER BY source, last_number DESC
LIMIT 1000
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC When backups ran, the 91 days up to the newest: a cell a day, red where a backup cannot be restored, hollow where the
# MAGIC policy had a run due and none came.

# COMMAND ----------

from lakebackup_jobs.query import charts
from lakebackup_jobs.query.report.values import calendar

catalog = con.catalog()
catalog.define("unusable", "report_unusable")
(newest,) = con.sql("SELECT coalesce(max(finished_at), 0) DIV 1000 AS ms FROM backups").rows()
runs = calendar(catalog, newest["ms"], 91)
notebook.show(charts.calendar(runs, newest["ms"], 91), "calendar")

# COMMAND ----------

# MAGIC %md
# MAGIC What each source keeps where, and what prunes took away.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, destination, backups, files, entries, bytes, raw_bytes, oldest_time, newest_time, pruned_bytes
FROM storage_by_source
ORDER BY bytes DESC
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC The largest topics.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, scope, count(*) AS files, sum(entries) AS records, sum(bytes) AS bytes, min(min_time) AS from_time,
  max(max_time) AS to_time
FROM files
GROUP BY source, scope
ORDER BY bytes DESC
LIMIT 100
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC Backups that cannot be used, or not with all their topics, and the file that is at fault.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, backup_id, reason, fault_backup_id, faults, path, detail, found_time
FROM unusable_backups
ORDER BY source, number DESC
LIMIT 1000
""")
)
