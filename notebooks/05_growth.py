# Databricks notebook source
# MAGIC %md
# MAGIC # Growth
# MAGIC How much each day brought, what it stands on without copying it again, and what is kept in all.
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
dbutils.widgets.text("capacity", "1000000000000", "Capacity in bytes")

# COMMAND ----------

import lakebackup

con = lakebackup.connect(dbutils.widgets.get("destination"), engine=spark)
con.register("growth", "storage_by_source", "files")

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, day, backups, new_files, new_bytes, referenced_bytes, removed_bytes, held_bytes
# MAGIC FROM growth
# MAGIC ORDER BY day DESC, source
# MAGIC LIMIT 1000

# COMMAND ----------

# MAGIC %md
# MAGIC Above what came and what prunes took away, below what the newest chain needs under all that is kept.

# COMMAND ----------

from lakebackup_jobs.query import charts

spans = con.catalog().rows("report_growth", steps=400)
for source in sorted({row["source"] for row in spans}):
    of = [row for row in spans if row["source"] == source]
    displayHTML(f"<h4>{source}</h4>" + charts.to_svg(charts.growth(of)))

# COMMAND ----------

# MAGIC %md
# MAGIC Which topics grew most in the last seven days, by the time of their records.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, scope, sum(bytes) AS bytes, sum(entries) AS records, count(*) AS files,
# MAGIC   round(sum(raw_bytes) / sum(bytes), 2) AS compressed
# MAGIC FROM files
# MAGIC WHERE max_time >= current_timestamp() - INTERVAL 7 DAYS
# MAGIC GROUP BY source, scope
# MAGIC ORDER BY bytes DESC
# MAGIC LIMIT 100

# COMMAND ----------

# MAGIC %md
# MAGIC How long the space lasts at the pace of the last thirty days: the capacity in the widget, in bytes.

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT source, held_bytes, added_bytes, round(30 * (:capacity - held_bytes) / added_bytes) AS days_left
# MAGIC FROM (
# MAGIC   SELECT source, max_by(held_bytes, day) AS held_bytes, sum(new_bytes - removed_bytes) AS added_bytes
# MAGIC   FROM growth
# MAGIC   WHERE day >= current_date() - INTERVAL 30 DAYS
# MAGIC   GROUP BY source
# MAGIC ) AS pace
# MAGIC WHERE added_bytes > 0
