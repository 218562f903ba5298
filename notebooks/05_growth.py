# Databricks notebook source
# MAGIC %md
# MAGIC # Growth
# MAGIC How much each day brought, what it stands on without copying it again, and what is kept in all.
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
    capacity="1000000000000",
)

# COMMAND ----------

con = lakebackup.connect(asked.destination)

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, day, backups, new_files, new_bytes, referenced_bytes, removed_bytes, held_bytes
FROM growth
ORDER BY day DESC, source
LIMIT 1000
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC Above what is stored, by source, below what backups added and prunes deleted.

# COMMAND ----------

from lakebackup_jobs.query import charts

notebook.show(charts.growth(con.catalog().rows("report_growth", steps=400)), "growth")

# COMMAND ----------

# MAGIC %md
# MAGIC Which topics grew most in the last seven days, by the time of their records.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, scope, sum(bytes) AS bytes, sum(entries) AS records, count(*) AS files,
  round(sum(raw_bytes) / sum(bytes), 2) AS compressed
FROM files
WHERE max_time >= current_timestamp() - INTERVAL 7 DAYS
GROUP BY source, scope
ORDER BY bytes DESC
LIMIT 100
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC How long the space lasts at the pace of the last thirty days: `capacity` is in bytes.

# COMMAND ----------

notebook.show(
    con.sql(f"""
SELECT source, held_bytes, added_bytes, round(30 * ({int(asked.capacity)} - held_bytes) / added_bytes) AS days_left
FROM (
  SELECT source, max_by(held_bytes, day) AS held_bytes, sum(new_bytes - removed_bytes) AS added_bytes
  FROM growth
  WHERE day >= current_date() - INTERVAL 30 DAYS
  GROUP BY source
) AS pace
WHERE added_bytes > 0
""")
)
