"""The rows that a plan works on, as Parquet objects that its tasks and its summaries read.

The engine that chose the rows streams them, in the order in which tasks read them, into a private temporary
folder of this process. That is so on Spark too: this process writes the rows as they arrive, and executors
need to see no folder of it. A run copies the objects to where its tasks find them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import uuid4
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lakebackup.errors import Damaged, EnvironmentProblem, NotFound
from lakebackup.sql_engine.delta.log import per_process
from lakebackup.sql_engine.lazy_dataset import LazyDataset
from lakebackup.storage import Storage, open_storage, working
from lakebackup.storage.scratch_folder import PrivateFolder

# A task reads only the groups that overlap its rows, and the footers of the objects that have them.
_GROUP_ROWS = 10_000
_OBJECT_ROWS = 1_000_000
# The row groups that a cache holds, each of up to `_GROUP_ROWS` rows.
_CACHED_GROUPS = 8
# Up to so many rows are read at once: a scan of fewer takes longer to set up than to read them.
_FEW_ROWS = 100_000


#: Row groups, by the path of their object, their number and their columns.
Groups: TypeAlias = "dict[tuple[str, int, tuple[str, ...] | None], pa.Table]"


class PlanObject(NamedTuple):
    """A Parquet object with some rows of a plan, by its path below the storage's root."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PlanFile:
    """The rows that a plan works on: those of its objects, one object after another.

    The storage at `uri` has the objects. The rows do not change, whatever is planned later.
    """

    uri: str
    objects: tuple[PlanObject, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(part.rows for part in self.objects)

    def batches(
        self,
        first: int = 0,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        cache: Groups | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows `[first, end)`, or all from `first` on, with some columns or all.

        Reads only the row groups that have such rows. For a caller that reads many small ranges, `cache`
        holds the groups that it read last. Raises Damaged when an object is missing or damaged.
        """
        storage, begin = open_storage(self.uri), 0
        stop = self.rows if end is None else end
        for part in self.objects:
            if begin < stop and first < begin + part.rows:
                with self._opened(storage, part) as file:
                    yield from _rows(file, part.path, first - begin, stop - begin, columns, cache)
            begin += part.rows

    def table(self) -> pa.Table:
        """Return all rows, of which there must be few. Raises as `batches`."""
        return pa.Table.from_batches(self.batches(), self.schema())

    def total(self, column: str) -> int:
        """Return the sum of a column of integers. Raises as `batches`."""
        batches = self.batches(columns=[column])
        return sum(pc.sum(batch.column(column), min_count=0).as_py() for batch in batches)

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns. Raises as `batches`."""
        with self._opened(open_storage(self.uri), self.objects[0]) as file:
            return file.schema_arrow

    def for_statements(self) -> pa.Table | ds.Dataset:
        """Return the rows in a form that DuckDB reads: few rows as a table, more as a dataset."""
        if self.rows <= _FEW_ROWS:
            return self.table()

        return LazyDataset(self.schema().empty_table(), lambda columns: self.batches(columns=columns))

    def copy_to(self, storage: Storage, folder: str) -> PlanFile:
        """Copy the objects below a folder of a storage; returns the copy. Raises EnvironmentProblem."""
        source, copies = open_storage(self.uri), []
        for number, part in enumerate(self.objects):
            copy = PlanObject(f"{folder}rows-{number:06d}.parquet", part.rows)
            with source.open(part.path) as stream:
                storage.upload(copy.path, stream, if_absent=False)
            copies.append(copy)
        return PlanFile(storage.uri, tuple(copies))

    def delete(self) -> None:
        """Delete the objects."""
        working.delete(open_storage(self.uri), [part.path for part in self.objects])

    @contextmanager
    def _opened(self, storage: Storage, part: PlanObject) -> Iterator[pq.ParquetFile]:
        try:
            with storage.open(part.path) as stream:
                yield pq.ParquetFile(stream, page_checksum_verification=True)
        except NotFound as error:
            raise Damaged(
                f"{part.path} in {self.uri}, with rows of a plan, is missing.",
                hint="Run the same command again.",
            ) from error
        except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
            raise Damaged(
                f"{part.path} in {self.uri}, with rows of a plan, is damaged: {error}",
                hint="Delete it and run the same command again.",
            ) from error


#: A plan without rows.
EMPTY = PlanFile("", ())


def _rows(
    file: pq.ParquetFile, path: str, first: int, end: int, columns: Sequence[str] | None, cache: Groups | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows `[first, end)` of a Parquet file; the range may begin before it and end behind it."""
    names = None if columns is None else tuple(columns)
    begin = 0
    for number in range(file.num_row_groups):
        stop = begin + file.metadata.row_group(number).num_rows
        if begin < end and first < stop:
            rows = None if cache is None else cache.get((path, number, names))
            if rows is None:
                rows = file.read_row_group(number, columns=names and list(names), use_threads=False)
                if cache is not None:
                    if len(cache) == _CACHED_GROUPS:
                        cache.clear()
                    cache[path, number, names] = rows
            start = max(first - begin, 0)
            yield from rows.slice(start, min(end, stop) - begin - start).to_batches()
        begin = stop


def write_plan_file(rows: Iterable[pa.RecordBatchReader]) -> PlanFile:
    """Write the rows of some streams, one after another, into the temporary folder of this process.

    The objects are deleted when the returned value ends, and at the end of the process. Raises
    EnvironmentProblem when there is no folder, or no room in it.
    """
    folder = _folder()
    writer = _Writer(folder.folder)
    try:
        for reader in rows:
            writer.open(reader.schema)
            for batch in reader:
                writer.write(batch)
    except OSError as error:
        raise EnvironmentProblem(
            f"The plan cannot be written into {folder.folder or 'a temporary folder'}: {error}.",
            hint="TMPDIR names another folder.",
        ) from error
    finally:
        objects = writer.close()
    file = PlanFile(folder.folder, tuple(objects))
    # The arguments keep the folder as long as the file.
    finalize(file, _delete, os.getpid(), folder, [part.path for part in objects])
    return file


class _Writer:
    """Writes batches as the objects of one plan file in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._name = uuid4().hex
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None
        self._objects: list[PlanObject] = []

    def open(self, schema: pa.Schema) -> None:
        """Begin the first object: even a plan without rows has columns."""
        if self._schema is None:
            self._schema = schema
            self._next_object()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch, as one or more row groups."""
        if self._objects[-1].rows >= _OBJECT_ROWS:
            self._next_object()
        if not batch.schema.equals(self._schema):  # a cast that changes nothing would load slow modules
            batch = batch.cast(self._schema)
        if self._writer is not None:
            self._writer.write_batch(batch, _GROUP_ROWS)
        path, rows = self._objects[-1]
        self._objects[-1] = PlanObject(path, rows + len(batch))

    def close(self) -> list[PlanObject]:
        """End the last object; returns all."""
        if self._writer is not None:
            self._writer.close()
        return self._objects

    def _next_object(self) -> None:
        self.close()
        path = f"{self._name}-{len(self._objects):06d}.parquet"
        if not self._folder:
            raise FileNotFoundError("no folder can be created")
        self._writer = pq.ParquetWriter(
            str(Path(self._folder, path)), self._schema, compression="zstd", write_page_checksum=True
        )
        self._objects.append(PlanObject(path, 0))


@per_process
def _folder() -> PrivateFolder:
    return PrivateFolder("lakebackup-plan-")


def _delete(process_id: int, folder: PrivateFolder, paths: Sequence[str]) -> None:
    """Delete the objects of a temporary plan file, but not in a fork of the process that wrote them."""
    if os.getpid() == process_id:
        for path in paths:
            with suppress(OSError):
                Path(folder.folder, path).unlink(missing_ok=True)
