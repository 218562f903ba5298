"""What a Spark task does for --verify-unchanged and --find-same: hash files that may be stored already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lakebackup.sql_engine.worker import settle
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.snapshots.source import SourceFile, Throttle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

HASHED = "scope STRING, region STRING, name STRING, sha256 STRING"
_CHUNK = 1 << 20


class _Chosen(NamedTuple):
    """A row of the query snapshot_to_hash."""

    scope: str
    region: str
    name: str
    folder: str
    bytes: int
    mtime_ns: int
    inode: int

    @property
    def file(self) -> str:
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True, slots=True)
class HashRows:
    """For `mapInArrow` over rows of snapshot_to_hash: columns as in HASHED. `rate`: bytes a second."""

    rate: float | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.rows(batches)
        settle()

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same in any process. Raises Refused (a file is not as it was listed), EnvironmentProblem."""
        import pyarrow as pa

        throttle = Throttle(self.rate)
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in _Chosen._fields]
            chosen = [_Chosen(*values) for values in zip(*columns, strict=True)]
            rows = [
                {"scope": one.scope, "region": one.region, "name": one.name, "sha256": _sha256(one, throttle)}
                for one in chosen
            ]
            yield pa.RecordBatch.from_pylist(rows, arrow_schema(HASHED))


def _sha256(chosen: _Chosen, throttle: Throttle) -> str:
    with SourceFile(chosen, throttle) as stream:
        while stream.read(_CHUNK):
            pass
        return stream.sha256
