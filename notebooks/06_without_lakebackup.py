# %% [markdown]
# # The catalog without lakebackup
# Any engine that reads Delta can answer questions about the backups. This notebook asks Spark with nothing but Delta. Only two
# cells call the command line of lakebackup: the first writes the views, the last restores.
#
# `LAKEBACKUP_REPO` names the folder or `s3://` URI that has the backups; `lakebackup.toml` is read too.

# %% tags=["parameters"]
topic = "orders"
target = "dir:./restored/orders"  # or kafka://HOST:PORT, or delta:PATH
schema = "lakebackup"
views = {"files", "storage_by_source", "checks", "audit"}  # what the SELECTs below read
really_restore = False

# %% [markdown]
# ## Register the views
# `catalog ddl` writes the statements. Spark runs them, and has the views with a comment on each column.

# %%
# !rm -f views.sql && lakebackup catalog ddl --for spark --schema $schema --out views.sql

# %%
import re
from pathlib import Path

from pyspark.sql import SparkSession

if "spark" not in globals():  # Databricks and `pyspark` have a session
    spark = (
        SparkSession.builder.config("spark.jars.packages", "io.delta:delta-spark_4.2_2.13:4.4.0")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )

# %% [markdown]
# All views take Spark some minutes. These are the statements of `views` and of what they read: each statement creates the first
# relation that it names, and reads the others.

# %%
statements = Path("views.sql").read_text("utf-8").split(";\n")
needed, selection = set(views), []
for statement in reversed(statements):
    created, *sources = re.findall(rf"\b{schema}\.(\w+)", statement) or [None]
    if created in needed or "CREATE SCHEMA" in statement:
        needed.update(sources)
        selection.insert(0, statement)
for statement in selection:
    spark.sql(statement)
spark.sql(f"USE {schema}")

# %% [markdown]
# ## Ask
# The views have the names that they have in lakebackup. So every SELECT of its documentation runs here too: this one says what
# each source holds, where, and how well it is compressed.

# %%
storage = spark.sql("""
SELECT source, destination, files, bytes, round(raw_bytes / bytes, 1) AS ratio, oldest_time, newest_time, pruned_bytes
FROM storage_by_source
ORDER BY bytes DESC
""").toPandas()
storage

# %% [markdown]
# When each repository was last verified, and with which result:

# %%
checks = spark.sql("""
SELECT destination, mode, outcome, max(time) AS last_time, count(*) AS objects
FROM checks
GROUP BY destination, mode, outcome
ORDER BY destination, mode, outcome
""").toPandas()
checks

# %% [markdown]
# Who did what, and how it ended:

# %%
audit = spark.sql("""
SELECT time, actor, host, action, subject, outcome, command
FROM audit
ORDER BY at DESC
LIMIT 20
""").toPandas()
audit

# %% [markdown]
# ## Restore by a SELECT
# A SELECT that returns `destination` and `path` of rows of `files` chooses what is restored. This one takes the files of the topic
# since its newest full. Look at them first, here in Spark.

# %%
sql = f"""
SELECT destination, path, region, entries, bytes, min_time, max_time
FROM files
WHERE scope = '{topic}'
  AND added_in >= (SELECT max(added_in) FROM files WHERE scope = '{topic}' AND level = 0)
ORDER BY path
"""
files = spark.sql(sql).toPandas()
files

# %% [markdown]
# The same text tells lakebackup what to restore. It checks the files and whether they leave gaps, and prints its plan.
# `really_restore = True` above carries it out.

# %%
mode = "" if really_restore else "--dry-run"
# !lakebackup restore topics --select "$sql" --to $target $mode
