"""Decides what the tasks of a job run on: Spark, or threads of this process. No other module decides it.

To start Spark takes longer than to copy little data. The tasks are the same on both.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakebackup.errors import UsageProblem
from lakebackup.requests import RunRequest
from lakebackup.rows.backups import Runner
from lakebackup_jobs.runtime.java import jvm
from lakebackup_jobs.runtime.java.home import is_installed

# This many bytes of a file are copied in the time that it takes to read, encode and compress one byte of
# records.
_FILE_BYTES_PER_RECORD_BYTE = 4
# The weight of one message of a queue. Two million messages still count as little: the plan has read the ends
# of the queues anyway.
_MESSAGE_BYTES = 32
# This many stored bytes of messages are restored in the time that it takes to restore one byte of records.
_RESTORED_MESSAGE_BYTES_PER_RECORD_BYTE = 4
# This many bytes of a snapshot's files are restored in the time that it takes to restore one byte of records.
_RESTORED_FILE_BYTES_PER_RECORD_BYTE = 64


def of_files(cost: int) -> int:
    """The size of an increment of files with `cost` bytes, as the bytes of records that take as long to back
    up."""
    return cost // _FILE_BYTES_PER_RECORD_BYTE


def of_messages(count: int) -> int:
    """The size of an increment of `count` messages of queues, in the same unit."""
    return count * _MESSAGE_BYTES


def of_restored_messages(stored_bytes: int, count: int) -> int:
    """The size of a restore of `count` messages of queues in files of `stored_bytes`, in the same unit."""
    return max(stored_bytes // _RESTORED_MESSAGE_BYTES_PER_RECORD_BYTE, of_messages(count))


def of_restored_files(cost: int) -> int:
    """The size of a restore of files with `cost` bytes, as the bytes of records that take as long to
    restore."""
    return cost // _RESTORED_FILE_BYTES_PER_RECORD_BYTE


def choose(
    request: RunRequest, size: int | None, *, session: SparkSession | None, beside_spark: bool = False
) -> Runner:
    """The runner of a job that reads `size` bytes of records; None: it is not known how many.

    With `auto` this is Spark if Spark runs already (`session`, a Spark Connect server, spark-submit), and
    otherwise depends on the size. Without Java, it is threads of this process. `beside_spark`: little data
    is for threads of this process even if Spark runs already.
    """
    if request.runner != "auto":
        return request.runner
    is_little = size is not None and size <= request.local_below
    if has_spark(request.remote, session):
        return "local" if is_little and beside_spark else "spark"
    return "local" if is_little or not is_installed() else "spark"


def require_spark(request: RunRequest, job: str) -> None:
    """Raise UsageProblem if a job that needs Spark's SQL is to run without Spark. `job`: what it does."""
    if request.runner == "local":
        raise UsageProblem(
            f"--runner local: a restore {job} needs Spark.",
            hint="Leave --runner out, or restore into topics, a folder or a file of rows.",
        )


def by_size(request: RunRequest, session: SparkSession | None) -> bool:
    """Whether the size of a job decides on its runner."""
    return request.runner == "auto" and not has_spark(request.remote, session)


def has_spark(remote: str | None, session: SparkSession | None) -> bool:
    """Whether Spark runs already: as a session, a Spark Connect server, or spark-submit."""
    return session is not None or remote is not None or jvm.SUBMITTED
