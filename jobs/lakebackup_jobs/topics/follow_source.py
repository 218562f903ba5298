"""Topics as a streaming source of Spark whose rows are what the tasks of a backup tell.

An offset is a prepared backup: its id and number, and the plan with every position it begins and ends at.
Spark writes it to its checkpoint before the batch runs, so a batch that was cut off runs again as the same
backup: tasks that were done find their parts, and what was published is published once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from lakebackup.errors import LakebackupError
from lakebackup.plan.topics.backup import Prepared
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.groups import Groups
from lakebackup_jobs.lifecycle.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.task_errors import arrow_schema, told
from lakebackup_jobs.lifecycle.task_totals import OUTCOME
from lakebackup_jobs.topics import backup as backup_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from lakebackup_jobs.topics.backup import BackupRequest
    from lakebackup_jobs.topics.tasks.copy import CopyJob

NAME = "lakebackup_topics"
#: A row a task, as of any backup, behind one row that holds the prepared backup itself.
ROWS = f"{OUTCOME}, prepared STRING"


_PREPARED = TypeAdapter(Prepared)


def read_prepared(text: str) -> Prepared:
    """The prepared backup of a row."""
    return _PREPARED.validate_json(text)


def _read(offset: Mapping[str, Any]) -> Prepared | None:
    """The prepared backup of an offset; None for the initial one, and for one of another version."""
    try:
        return _PREPARED.validate_python(offset)
    except ValidationError:
        return None


@dataclass(frozen=True)
class _Share(InputPartition):
    """What one Spark task does: say what the batch is, or be a task of the backup."""

    prepared: str | None = None
    job: CopyJob | None = None
    task: int = 0


class _Reader(DataSourceStreamReader):
    """Planning runs in one Python process of the driver's machine as long as the query does."""

    def __init__(self, request: BackupRequest, source: str) -> None:
        self._request, self._source = request, source
        self._cluster: Groups | None = None
        # Whether the source's records were compared with those of the newest backup: once, then epochs do.
        self._compared = False
        self._last: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The last offset again as long as there is nothing new behind what the catalog holds."""
        if self._cluster is None:
            self._cluster = Groups(self._request.kafka)
        try:
            prepared = backup_topics.prepare(
                self._request, self._source, self._cluster, self._catalog(), contents=not self._compared
            )
            self._compared = True
        except LakebackupError as error:
            raise RuntimeError(told(error)) from None
        if not prepared.plan.idle:
            self._last = _PREPARED.dump_python(prepared, mode="json")
        return self._last

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """No work when the catalog is not as it was when the batch was prepared: it holds it, or another."""
        prepared = _read(end)
        if prepared is None:
            return []
        shares: list[InputPartition] = [_Share(_PREPARED.dump_json(prepared).decode())]
        reader = self._catalog()
        if latest_number(reader, self._source) + 1 == prepared.number:
            storage = open_storage(self._request.destination)
            sequences = next_sequences(reader, self._source, prepared.plan.scopes)
            job = backup_topics.copy_job(
                self._request, storage, self._source, prepared, sequences, report=False
            )
            shares += [_Share(job=job, task=task) for task in range(len(prepared.plan.tasks))]
        return shares

    def read(self, partition: _Share) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """One row."""
        if partition.job is None:
            yield pa.RecordBatch.from_pylist([{"prepared": partition.prepared}], arrow_schema(ROWS))
            return
        for row in partition.job(pa.table({"id": [partition.task]}).to_batches()):
            yield pa.RecordBatch.from_pylist(row.to_pylist(), arrow_schema(ROWS))

    def _catalog(self) -> CatalogReader:
        """As it is now."""
        return CatalogReader(self._request.destination, self._request.catalog)


def source_of(request: BackupRequest, source: str) -> type[DataSource]:
    """The class to register. It holds the request itself: options of a source are shown in Spark's plans."""

    class Topics(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return ROWS

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
            return _Reader(request, source)

    return Topics
