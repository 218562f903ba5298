"""What the tasks of a backup run on: Spark, or threads of this process. The one place that decides it.

Starting Spark takes longer than copying what a small increment holds. The tasks are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebackup_jobs.runtime import jvm

if TYPE_CHECKING:
    from lakebackup.requests import RunRequest
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


def choose(asked: RunRequest, size: int | None, *, session: bool) -> Runner:
    """The runner of a backup of `size` bytes of records; None: it is a full, or nobody knows.

    `auto` is Spark where it is there already (`session`, a Spark Connect server, spark-submit).
    """
    if asked.runner == "local":
        return "local"
    there = session or asked.remote is not None or jvm.SUBMITTED
    if asked.runner == "spark" or there or size is None or size > asked.local_below:
        return "spark"
    return "local"
