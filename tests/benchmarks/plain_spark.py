"""The reference for cold commands: a bare PySpark session with one Python task, and Spark's own settings."""

from __future__ import annotations

from pyspark.sql import SparkSession

if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    assert session.sparkContext.parallelize([20], 1).map(lambda number: number + 1).collect() == [21]
    session.stop()
