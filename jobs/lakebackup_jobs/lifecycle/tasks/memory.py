"""How many tasks this process runs at a time: as many as fit into its memory.

The figures are measured (docs/operations.md, "Size"). Spark decides by itself how many tasks a worker runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakebackup_jobs.runtime.memory_limit import memory_limit

# The part of the process's memory for its tasks. The rest is for the catalog, libraries and the allocator.
_TASKS_PART = 0.5
# What the blocks and the client of a task take while records are small.
_TASK_BYTES = 48 << 20
# How often a task that reads from Kafka holds a record that is larger than a fetch: fetched, queued, and in
# blocks that are filled, compressed and written.
_COPIES_READ = 7
# The same for a task that writes into Kafka: decompressed, and queued.
_COPIES_WRITTEN = 2
# The most bytes that a client fetches at once, unless a record is larger (librdkafka.READING_TUNING).
_FETCH_BYTES = 4 << 20
_MAX_MESSAGE = "max.message.bytes"


def tasks_at_once(task_bytes: int, most: int) -> int:
    """Return how many tasks of so many bytes fit into the memory of this process: at least one, at most
    `most`."""
    return max(1, min(most, int(memory_limit() * _TASKS_PART) // task_bytes))


def largest_record(settings: Iterable[Mapping[str, str]]) -> int:
    """Return the size of the largest record that topics with these settings accept, or that of a fetch if it
    is larger. Brokers compare it with a batch as it is compressed, so a record may be larger after all."""
    return max([_FETCH_BYTES, *(int(topic.get(_MAX_MESSAGE, 0)) for topic in settings)])


def bytes_to_read(record_bytes: int) -> int:
    """Return the memory of a task that reads records of up to `record_bytes` from Kafka."""
    return _TASK_BYTES + _COPIES_READ * record_bytes


def bytes_to_write(record_bytes: int, file_bytes: int, queue_bytes: int) -> int:
    """Return the memory of a task that writes records of up to `record_bytes` from files of up to
    `file_bytes` into Kafka, through a queue of `queue_bytes`."""
    return _TASK_BYTES + file_bytes + queue_bytes + _COPIES_WRITTEN * record_bytes
