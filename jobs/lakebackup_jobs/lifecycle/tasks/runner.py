"""What the tasks of a backup run on: Spark, or threads of this process. The one place that decides it.

Starting Spark takes longer than copying what a small increment holds. The tasks are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebackup.requests import LOCAL_BELOW
from lakebackup_jobs.runtime.java import jvm
from lakebackup_jobs.runtime.java.home import is_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup.requests import Request, RunRequest
    from lakebackup.rows.backups import Runner


# What a byte of a record costs, which is read, encoded and compressed, copies so much of a file.
_FILE_BYTES = 4
# A message of a queue counts for so little that two million are small: its plan has read the ends anyway.
_MESSAGE = 8


def of_files(cost: int) -> int:
    """The size of an increment of files, whose copying costs as much as that of `cost` bytes."""
    return cost // _FILE_BYTES


def of_messages(count: int) -> int:
    """The size of an increment of `count` messages of queues."""
    return count * _MESSAGE


def choose(asked: RunRequest, size: int | None, *, session: SparkSession | None) -> Runner:
    """The runner of a backup of `size` bytes of records; None: it is a full, or nobody knows.

    `auto` is Spark where it is there already (`session`, a Spark Connect server, spark-submit).
    Without a Java to start Spark with it is threads of this process.
    """
    if asked.runner == "local":
        return "local"
    if not by_size(asked, session):
        return "spark"
    is_little = size is not None and size <= asked.local_below
    return "local" if is_little or not is_installed() else "spark"


def by_size(asked: RunRequest, session: SparkSession | None) -> bool:
    """Whether it is the size of a backup that decides on its runner."""
    return asked.runner == "auto" and not has_spark(asked.remote, session)


def is_small(size: int, asked: Request, session: SparkSession | None) -> bool:
    """Whether this process reads `size` bytes to check them: Spark is not there, and would take longer to
    start."""
    return size <= LOCAL_BELOW and not has_spark(asked.remote, session)


def has_spark(remote: str | None, session: SparkSession | None) -> bool:
    """Whether Spark is there already: a session, a Spark Connect server, or spark-submit."""
    return session is not None or remote is not None or jvm.SUBMITTED
