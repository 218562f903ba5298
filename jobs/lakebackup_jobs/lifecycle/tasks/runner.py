"""Decides what the tasks of a backup run on: Spark, or threads of this process. No other module decides it.

To start Spark takes longer than to copy a small increment. The tasks are the same on both.
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


# This many bytes of a file are copied in the time that it takes to read, encode and compress one byte of
# records.
_FILE_BYTES_PER_RECORD_BYTE = 4
# The weight of one message of a queue. Two million messages still count as small: the plan has read the ends
# of the queues anyway.
_MESSAGE_BYTES = 8


def of_files(cost: int) -> int:
    """The size of an increment of files with `cost` bytes, as the bytes of records that take as long to back
    up."""
    return cost // _FILE_BYTES_PER_RECORD_BYTE


def of_messages(count: int) -> int:
    """The size of an increment of `count` messages of queues, in the same unit."""
    return count * _MESSAGE_BYTES


def choose(asked: RunRequest, size: int | None, *, session: SparkSession | None) -> Runner:
    """The runner of a backup of `size` bytes of records; None: the backup is a full, or its size is not
    known.

    With `auto` this is Spark if Spark runs already (`session`, a Spark Connect server, spark-submit), and
    otherwise depends on the size. Without Java, it is threads of this process.
    """
    if asked.runner == "local":
        return "local"
    if not by_size(asked, session):
        return "spark"
    is_little = size is not None and size <= asked.local_below
    return "local" if is_little or not is_installed() else "spark"


def by_size(asked: RunRequest, session: SparkSession | None) -> bool:
    """Whether the size of a backup decides on its runner."""
    return asked.runner == "auto" and not has_spark(asked.remote, session)


def is_small(size: int, asked: Request, session: SparkSession | None) -> bool:
    """Whether this process reads `size` bytes to check them, because Spark does not run yet, and would take
    longer to start."""
    return size <= LOCAL_BELOW and not has_spark(asked.remote, session)


def has_spark(remote: str | None, session: SparkSession | None) -> bool:
    """Whether Spark runs already: as a session, a Spark Connect server, or spark-submit."""
    return session is not None or remote is not None or jvm.SUBMITTED
