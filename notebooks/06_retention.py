# Databricks notebook source
# MAGIC %md
# MAGIC # Retention
# MAGIC What the policies keep and let go of, and why; whether the schedules are kept; what was deleted.
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

notebook.show(
    con.sql("""
SELECT source, full_schedule, incremental_schedule, window_days, redundancy, min_redundancy, actor, time
FROM policies
ORDER BY source
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC What becomes of the backups, and what `lakebackup prune --delete` would free.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, status, reason, count(*) AS backups, sum(files) AS files, sum(bytes) AS bytes,
  min(end_time) AS oldest, max(end_time) AS newest
FROM obsolete_backups
GROUP BY source, status, reason
ORDER BY source, status, reason
""")
)

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT o.source, o.number, o.backup_id, o.kind, o.level, o.end_time, o.status, o.reason, o.because_of,
  h.reason AS held_because, h.until_time
FROM obsolete_backups AS o
LEFT JOIN holds AS h
  ON o.backup_id = h.backup_id
ORDER BY o.source, o.number DESC
LIMIT 1000
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC Runs that should have been, and what would be lost now.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, run, schedule, last_time, missed, round(lag_ms / 60000) AS lag_minutes,
  lag_ms > every_ms AS more_than_promised
FROM missed_runs
ORDER BY missed DESC, source, run
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC What prunes took away, by reason.

# COMMAND ----------

notebook.show(
    con.sql("""
SELECT source, prune_id, time, reason, sum(coalesce(files, 1)) AS files, sum(bytes) AS bytes
FROM removals
GROUP BY source, prune_id, time, reason
ORDER BY time DESC
LIMIT 1000
""")
)
