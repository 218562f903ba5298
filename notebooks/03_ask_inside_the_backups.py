# Databricks notebook source
# MAGIC %md
# MAGIC # Ask inside the backups
# MAGIC `records('topic')` is the records that the backups hold, as a relation. Nothing is restored: only files that can hold the answer are
# MAGIC opened, and each is verified first.
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
    key="4711",
)

# COMMAND ----------

topic, key = asked.topic, asked.key.replace("'", "''")
con = lakebackup.connect(asked.destination, engine=globals().get("spark", "duckdb"))

# COMMAND ----------

# MAGIC %md
# MAGIC All that was ever written under one key, with the file and the backup that hold it.

# COMMAND ----------

notebook.show(
    con.sql(f"""
SELECT partition, kafka_offset, time, key, value, backup_id, path
FROM records('{topic}')
WHERE key = '{key}'
ORDER BY partition, kafka_offset
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC How many records there are of each partition, and from when to when.

# COMMAND ----------

notebook.show(
    con.sql(f"""
SELECT partition, count(*) AS records, min(kafka_offset) AS first_offset, max(kafka_offset) AS last_offset,
  min(time) AS from_time, max(time) AS to_time
FROM records('{topic}')
GROUP BY partition
ORDER BY partition
""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC The latest record of each key: what a compacted topic would hold. A record without a value takes its key away.

# COMMAND ----------

notebook.show(
    con.sql(f"""
SELECT key, value, time
FROM (
  SELECT key, value, time, row_number() OVER (PARTITION BY key ORDER BY partition, kafka_offset DESC) AS age
  FROM records('{topic}')
  WHERE key IS NOT NULL
) AS r
WHERE age = 1 AND value IS NOT NULL
ORDER BY key
LIMIT 1000
""")
)
