"""The last task of a flush: what its ranges come to together.

From the marks that the capture's tasks put and the regions as they were: how far each region is now, and up
to which ts the log is whole. From the meta keys: which tables there are, under which names. Both are put as
listings, whose rows the commit takes into the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.tally import OUTCOME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.changelog.cipher import LogKeys
    from lakebackup_jobs.changelog.feeds import Feed

#: One row. checkpoint: up to which ts the log is whole once this flush is in the catalog, never less than
#: `resolved_ts` of the job; NULL: not known yet.
FOLDED = f"{OUTCOME}, checkpoint BIGINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldJob:
    """Run once, when all capture tasks are done, with the number of its own part: `tasks`.

    catalog: where the catalog is, None: below the destination; it says how regions and tables were. feed,
    context, source ... parent: as the CaptureJob's. tasks: how many capture tasks there were. resolved_ts:
    the checkpoint before, None: none yet. keys: for meta files that are encrypted.
    """

    destination_uri: str
    destination: str
    catalog: str | None
    source: str
    backup_id: str
    number: int
    parent: str | None
    feed: Feed
    context: Mapping[str, Any]
    tasks: int
    resolved_ts: int | None
    keys: LogKeys | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over one number: one row, columns as in FOLDED."""
        raise NotImplementedError
