# Databricks notebook source
# MAGIC %md
# MAGIC # Inventory: what is there
# MAGIC A tour of the catalog: backups, chains, topics, files, and what verify last saw of them.
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
con.register()

# COMMAND ----------

# MAGIC %md
# MAGIC Every backup is one row. `intact` means that its whole chain is there, so that it can be restored.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, number, backup_id, kind, state, intact, end_time, files, entries, bytes
# MAGIC FROM backups
# MAGIC ORDER BY source, number DESC
# MAGIC LIMIT 1000

# COMMAND ----------

# MAGIC %md
# MAGIC Each full and what stands on it.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, base, backups, first_number, last_number, files, entries, bytes, intact
# MAGIC FROM chains
# MAGIC ORDER BY source, last_number DESC
# MAGIC LIMIT 1000

# COMMAND ----------

# MAGIC %md
# MAGIC The same as a picture: a line a chain, a diamond a full, red what the source had let go of before it was backed up.

# COMMAND ----------

from lakebackup_jobs.query import charts

catalog = con.catalog()
catalog.define("unusable", "report_unusable")
catalog.define("drawn", "report_chains", chains=24)
chains = catalog.rows("report_chains", chains=24)
marks, breaks = catalog.rows("report_marks", steps=400), catalog.rows("report_breaks")
for source in sorted({row["source"] for row in chains}):
    of = [[row for row in rows if row["source"] == source] for rows in (chains, marks, breaks)]
    displayHTML(f"<h4>{source}</h4>" + charts.to_svg(charts.timeline(*of)))

# COMMAND ----------

# MAGIC %md
# MAGIC What each source keeps where, and what prunes took away.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, destination, backups, files, entries, bytes, raw_bytes, oldest_time, newest_time, pruned_bytes
# MAGIC FROM storage_by_source
# MAGIC ORDER BY bytes DESC

# COMMAND ----------

# MAGIC %md
# MAGIC The largest topics.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, scope, count(*) AS files, sum(entries) AS records, sum(bytes) AS bytes, min(min_time) AS from_time,
# MAGIC   max(max_time) AS to_time
# MAGIC FROM files
# MAGIC GROUP BY source, scope
# MAGIC ORDER BY bytes DESC
# MAGIC LIMIT 100

# COMMAND ----------

# MAGIC %md
# MAGIC Backups that cannot be used, or not with all their topics, and the file that is at fault.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, backup_id, reason, fault_backup_id, faults, path, detail, found_time
# MAGIC FROM unusable_backups
# MAGIC ORDER BY source, number DESC
# MAGIC LIMIT 1000
