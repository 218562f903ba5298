"""Spark finds data sources in packages of this kind of name, so that nobody has to register this one."""

from lakebackup_jobs.query.data_source import LakebackupSource as DefaultSource

__all__ = ["DefaultSource"]
