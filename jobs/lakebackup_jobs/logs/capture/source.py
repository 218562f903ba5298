"""A change feed as a streaming source of Spark whose rows are what the tasks of a flush tell.

An offset is a flush that was planned: its id and number, and the ranges it reads. Spark writes it to its
checkpoint before the batch runs, so that one that was cut off runs again as the same flush: tasks that were
done find their parts, and what was published is published once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from lakebackup.errors import LakebackupError
from lakebackup.plan.logs.flush import Flush
from lakebackup_jobs.lifecycle.task_errors import arrow_schema, told
from lakebackup_jobs.logs.capture.flush import Planner, capture_job, is_next
from lakebackup_jobs.logs.capture.flush_task import CAPTURED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from lakebackup_jobs.logs.capture.flush import LogRequest
    from lakebackup_jobs.logs.capture.flush_task import CaptureJob

#: A row a task, behind one row that holds the flush itself.
ROWS = f"{CAPTURED}, flush STRING"

_FLUSH = TypeAdapter(Flush)


def name_of(request: LogRequest) -> str:
    """The source's name in a session, where tasks may run side by side."""
    return f"lakebackup_log_{request.name}"


def read_flush(text: str) -> Flush:
    """The flush of a row."""
    return _FLUSH.validate_json(text)


@dataclass(frozen=True)
class _Share(InputPartition):
    """What one Spark task does: say what the flush is, or be a task of it."""

    flush: str | None = None
    job: CaptureJob | None = None
    task: int = 0


class _Reader(DataSourceStreamReader):
    """Planning runs in one Python process of the driver's machine as long as the query does."""

    def __init__(self, request: LogRequest, now: bool) -> None:
        self._request, self._now = request, now
        self._planner: Planner | None = None
        self._last: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The last offset again as long as no flush is due; with `now`, until what there was is flushed."""
        try:
            self._planner = self._planner or Planner(self._request)
            flush = self._planner.plan(now=self._now)
        except LakebackupError as error:
            raise RuntimeError(told(error)) from None
        if flush is not None:
            self._last = _FLUSH.dump_python(flush, mode="json")
        return self._last

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """No work when the catalog is not as it was when the flush was planned: it holds it, or another."""
        try:
            flush = _FLUSH.validate_python(end)
        except ValidationError:  # the initial one, or one of another version
            return []
        shares: list[InputPartition] = [_Share(_FLUSH.dump_json(flush).decode())]
        if is_next(self._request, flush):
            try:
                job = capture_job(self._request, flush)
            except LakebackupError as error:
                raise RuntimeError(told(error)) from None
            shares += [_Share(job=job, task=task) for task in range(len(flush.tasks))]
        return shares

    def read(self, partition: _Share) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """One row."""
        if partition.job is None:
            yield pa.RecordBatch.from_pylist([{"flush": partition.flush}], arrow_schema(ROWS))
            return
        for row in partition.job(pa.table({"id": [partition.task]}).to_batches()):
            yield pa.RecordBatch.from_pylist(row.to_pylist(), arrow_schema(ROWS))


def source_of(request: LogRequest, *, now: bool = False) -> type[DataSource]:
    """The class to register; `now`: for flushes of what there is. It holds the request itself: options of
    a source are shown in Spark's plans."""

    class Log(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of(request)

        def schema(self) -> str:
            return ROWS

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
            return _Reader(request, now)

    return Log
