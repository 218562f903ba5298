"""Continuous backups as a streaming source of Spark. The source's rows are what the tasks report.

An offset of the source is a draft: the id and number of a backup, and all that it reads. Spark writes it to
its checkpoint before the batch runs, so an interrupted batch runs again as the same backup. Completed tasks
then find their parts, and a published backup is not published again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from lakebackup.errors import LakebackupError
from lakebackup_jobs.lifecycle.source import D
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema, encode_error
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME

# A function as for Spark's mapInArrow: from the numbers of tasks it makes the rows that these tasks report.
Job: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


class Planner(ABC, Generic[D]):
    """Plans backup after backup while the query runs, in a Python process on the driver's machine.

    The planner is pickled into that process. It is not passed as options of the source, since Spark's plans
    show these.
    """

    DRAFT: ClassVar[TypeAdapter[Any]]
    #: The columns of the row that a task reports.
    COLUMNS: ClassVar[str] = OUTCOME

    @abstractmethod
    def plan(self) -> D | None:
        """The draft of the next backup; None while there is nothing to do."""

    @abstractmethod
    def job(self, draft: D) -> tuple[Job, int] | None:
        """The job of a draft's tasks, and the number of tasks. None if there is nothing to run, since the
        catalog has this backup already, or another backup was taken first."""


@dataclass(frozen=True)
class _Split(InputPartition):
    """The input of one Spark task: either the draft, to return as a row, or the job and the number of its
    task."""

    draft: str | None = None
    job: Job | None = None
    task: int = 0


class _Reader(DataSourceStreamReader):
    """Offers the drafts of a planner as offsets, and runs the tasks of each draft."""

    def __init__(self, planner: Planner[Any]) -> None:
        self._planner = planner
        self._last: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The next draft, whatever the limit; the last offset again while there is nothing to do."""
        try:
            draft = self._planner.plan()
        except LakebackupError as error:
            raise RuntimeError(encode_error(error)) from None
        if draft is not None:
            self._last = self._planner.DRAFT.dump_python(draft, mode="json")
        return self._last

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """One partition for the draft, and one for each task."""
        try:
            draft = self._planner.DRAFT.validate_python(end)
        except ValidationError:  # the initial offset, or a draft of another version
            return []
        try:
            job_and_count = self._planner.job(draft)
        except LakebackupError as error:
            raise RuntimeError(encode_error(error)) from None
        first = _Split(self._planner.DRAFT.dump_json(draft).decode())
        if job_and_count is None:
            return [first]
        job, count = job_and_count
        return [first, *(_Split(job=job, task=task) for task in range(count))]

    def read(self, partition: _Split) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The draft as a row, or the rows that one task reports."""
        schema = arrow_schema(_columns(self._planner))
        if partition.job is None:
            yield pa.RecordBatch.from_pylist([{"draft": partition.draft}], schema)
            return
        for row in partition.job(pa.table({"id": [partition.task]}).to_batches()):
            yield pa.RecordBatch.from_pylist(row.to_pylist(), schema)


def _columns(planner: Planner[Any]) -> str:
    return f"{planner.COLUMNS}, draft STRING"


def source_class(source_name: str, planner: Planner[Any]) -> type[DataSource]:
    """The data source class to register. `source_name` distinguishes the sources of one session."""

    class Backups(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> str:
            return _columns(planner)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
            return _Reader(planner)

    return Backups
