"""What a Spark task of a flush does: read its ranges of a change feed, decode them, write log files.

The part is the task's commit: of two attempts the first counts. All events of a region are in one partition,
and a partition is in one task, so no two tasks write files of one (region, table).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.tally import OUTCOME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.changelog.cipher import Cipher
    from lakebackup_jobs.changelog.feeds import Feed, Range

#: A row a task. ends: JSON [[topic, partition, start, end], …], what was captured of each range: less than
#: planned where the feed's transactions are not whole yet. told: JSON {"records": kept, "read": bytes read
#: from Kafka, "skipped": {reason: count}}, for metrics.
CAPTURED = f"{OUTCOME}, ends STRING, told STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureJob:
    """The same for every task of one flush.

    client: librdkafka's settings. context: what the feed's `prepare` gave. tasks: the ranges that each task
    reads; all ranges of a partition are one. codec, compression_level: of logfile.CODECS. cipher: None: files
    are not encrypted. left_out: path of a Parquet object with a column `table_id`: tables that were never
    in the filter; ids that nobody knows yet are captured. after_ts: writes with commit_ts <= it are left
    out (meta keys never are); until_ts: what begins or commits after it is left out; None: no limit.
    scratch: folder for temporary files on the machine of a task. report: tell progress.
    """

    destination_uri: str
    destination: str
    source: str
    backup_id: str
    number: int
    parent: str | None
    client: Mapping[str, str]
    feed: Feed
    context: Mapping[str, Any]
    tasks: tuple[tuple[Range, ...], ...]
    isolation: str = "read_committed"
    codec: str = "zstd"
    compression_level: int | None = None
    cipher: Cipher | None = field(default=None, repr=False)
    left_out: str | None = None
    after_ts: int | None = None
    until_ts: int | None = None
    scratch: str | None = None
    report: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over task numbers: one row a task, columns as in CAPTURED."""
        raise NotImplementedError
