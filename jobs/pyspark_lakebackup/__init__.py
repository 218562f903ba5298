"""Registers lakebackup's data source. Spark looks for data sources in packages named `pyspark_…`."""

from lakebackup_jobs.query.data_source import LakebackupSource as DefaultSource

__all__ = ["DefaultSource"]
