"""Backups without an end as a streaming source of Spark, whose rows are what their tasks report.

An offset is a draft: the id and number of a backup, and all that it reads. Spark writes it to its
checkpoint before the batch runs, so a batch that was interrupted runs again as the same backup: tasks that
were done find their parts, and what was published is published once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from lakebackup.errors import LakebackupError
from lakebackup_jobs.lifecycle.source import D
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema, told
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    Job = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Planner(ABC, Generic[D]):
    """Plans one backup after the other, in one Python process of the driver's machine, as long as the query
    runs. It travels there by itself: options of a source would be shown in Spark's plans.
    """

    DRAFT: ClassVar[TypeAdapter[Any]]
    #: What a task reports.
    COLUMNS: ClassVar[str] = OUTCOME

    @abstractmethod
    def plan(self) -> D | None:
        """The next backup; None as long as there is nothing to do."""

    @abstractmethod
    def job(self, draft: D) -> tuple[Job, int] | None:
        """What its tasks do, and how many there are; None when the catalog is not as it was: it has the
        backup already, or another one came first."""


@dataclass(frozen=True)
class _Split(InputPartition):
    """What one Spark task does: pass on the draft, or be a task of it."""

    draft: str | None = None
    job: Job | None = None
    task: int = 0


class _Reader(DataSourceStreamReader):
    def __init__(self, planner: Planner[Any]) -> None:
        self._planner = planner
        self._last: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The last offset again as long as there is nothing to do."""
        try:
            draft = self._planner.plan()
        except LakebackupError as error:
            raise RuntimeError(told(error)) from None
        if draft is not None:
            self._last = self._planner.DRAFT.dump_python(draft, mode="json")
        return self._last

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """One for the draft and one a task."""
        try:
            draft = self._planner.DRAFT.validate_python(end)
        except ValidationError:  # the initial one, or one of another version
            return []
        try:
            found = self._planner.job(draft)
        except LakebackupError as error:
            raise RuntimeError(told(error)) from None
        first = _Split(self._planner.DRAFT.dump_json(draft).decode())
        if found is None:
            return [first]
        job, count = found
        return [first, *(_Split(job=job, task=task) for task in range(count))]

    def read(self, partition: _Split) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """One row."""
        schema = arrow_schema(_rows(self._planner))
        if partition.job is None:
            yield pa.RecordBatch.from_pylist([{"draft": partition.draft}], schema)
            return
        for row in partition.job(pa.table({"id": [partition.task]}).to_batches()):
            yield pa.RecordBatch.from_pylist(row.to_pylist(), schema)


def _rows(planner: Planner[Any]) -> str:
    return f"{planner.COLUMNS}, draft STRING"


def source_class(source_name: str, planner: Planner[Any]) -> type[DataSource]:
    """The class to register under a name, which tells sources of one session apart."""

    class Backups(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> str:
            return _rows(planner)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
            return _Reader(planner)

    return Backups
