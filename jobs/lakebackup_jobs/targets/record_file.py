"""Restore records as the rows of one file: CSV, JSON lines or Parquet.

This process writes the file, without Spark: one partition after another, each in the order of its offsets.
The file has a temporary name until it is complete. A run after an interrupted one starts the file over. If
the file has its name already, it must be the one that the interrupted run recorded right before.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.rules.schema_ids import schema_ids
from lakebackup.sql_engine.pace import paced
from lakebackup.sql_engine.worker import rate_of_one
from lakebackup.storage import AlreadyExists, ObjectWriter, open_storage
from lakebackup.storage.nesting import require_outside
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.kafka.format.values import Decoder
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.runtime.row_text import csv_texts, json_texts
from lakebackup_jobs.targets import Target, full_path
from lakebackup_jobs.targets.record_rows import JSON_COLUMNS, RowMaker
from lakebackup_jobs.targets.records import Records

_GROUP_BYTES, _GROUP_ROWS = 64 << 20, 1 << 20
"""The size of a Parquet row group, which is held in memory until it is written."""


class _RowWriter(Protocol):
    def __call__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: _Hashed) -> None: ...


class RecordFile(Target):
    """A new file, at a path or URI in an existing folder. `form`: csv, json or parquet."""

    is_local = True

    def __init__(self, request: RestoreRequest, form: str, path: str, reader: CatalogReader) -> None:
        require_outside(request, path, is_file=True)
        self._form, self._reader = form, reader
        if path.endswith("/"):
            raise UsageProblem(f"--to {form}:{path} names a folder.", hint=f"Name a file: {form}:{path}FILE.")
        self._path = full_path(path)
        folder, _, self._name = self._path.rpartition("/")
        self._folder = folder or "/"
        self._storage = open_storage(self._folder, private=False)
        self.name = f"{form}:{self._path}"
        self._resumed = False

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        reason, hint = self._misfit() or (None, None)
        refusal = {"refused_hint": hint} if hint else {}
        return {"target_file": self._path, "refused_because": reason, **refusal}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        self._resumed = resumed
        if misfit := self._misfit():
            reason, hint = misfit
            raise Refused(f"{reason}.", hint=hint)

    def _misfit(self) -> tuple[str, str] | None:
        """Why the file cannot be written, and a hint; None: it can be written."""
        if "://" not in self._path:
            if not Path(self._folder).is_dir():
                return f"{self._path} lies in a folder that does not exist", "Create the folder first."
            if Path(self._path).is_dir():
                return f"{self._path} is a folder", "Name a file in it."
        if self._storage.exists(self._name) and not self._resumed:
            return f"{self._path} exists already", "Name another file, or delete this one first."
        return None

    def write(self, content: Records) -> list[RegionOutcome]:
        """Write the file, and give it its name at the end. Returns the outcome of each partition.

        Raises Damaged, EnvironmentProblem (a full disk), Refused (the file was created meanwhile).
        """
        writers: dict[str, _RowWriter] = {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}
        if (earlier_outcomes := self._outcomes_of_interrupted(content)) is not None:
            return earlier_outcomes
        outcomes: list[RegionOutcome] = []
        maker = self._row_maker(content)
        try:
            with self._storage.writer() as sink, paced(rate_of_one(1)):
                hashed = _Hashed(sink)
                writers[self._form](_rows(content, maker, outcomes), maker.schema, hashed)
                record = {"sha256": hashed.sha256.hexdigest(), "outcomes": [*map(asdict, outcomes)]}
                open_storage(content.shares.uri).put(
                    _record_path(content), json.dumps(record).encode(), if_absent=False
                )
                sink.commit(self._name)
        except AlreadyExists:
            raise _created_meanwhile(self._path) from None
        finally:
            self._remove_empty_folder()
        return outcomes

    def _outcomes_of_interrupted(self, content: Records) -> list[RegionOutcome] | None:
        """The outcomes of an interrupted run of this restore that completed the file; None: none did.

        Raises Refused when the file is of somebody else.
        """
        if not self._storage.exists(self._name):
            return None
        try:
            record = json.loads(open_storage(content.shares.uri).get(_record_path(content)))
        except NotFound:
            record = {}
        if record.get("sha256") != self._storage.sha256(self._name):
            raise _created_meanwhile(self._path)
        return [RegionOutcome(**outcome) for outcome in record["outcomes"]]

    def _row_maker(self, content: Records) -> RowMaker:
        plan = content.plan
        decoder = None
        if schemas := self._reader.rows("value_schemas", source=plan.source):
            decoder = Decoder(schema_ids(schemas))
        return RowMaker(
            targets={t.scope: t.target for t in plan.topics},
            from_ts=plan.from_ts,
            to_ts=plan.to_ts,
            decoder=decoder,
            typed=self._form == "parquet",
        )

    def _remove_empty_folder(self) -> None:
        """Remove the storage's folder of temporary files beside the file, unless another run uses it."""
        if "://" not in self._folder:
            with suppress(OSError):
                Path(self._folder, ".tmp").rmdir()


class _Hashed:
    """Writes to a file, and computes the SHA-256 of what it writes."""

    def __init__(self, sink: ObjectWriter) -> None:
        self._sink = sink
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sha256.update(data)
        self._sink.write(data)


def _record_path(content: Records) -> str:
    """The path of what a run records of the file before it gets its name; it is deleted with the plan."""
    return f"{content.shares.folder}plan/file.json"


def _created_meanwhile(path: str) -> Refused:
    return Refused(
        f"The file {path} was created by somebody else meanwhile.",
        hint="Nothing of it was changed. Name another file.",
    )


def _rows(content: Records, maker: RowMaker, outcomes: list[RegionOutcome]) -> Iterator[pa.RecordBatch]:
    """The rows of all partitions. When a partition is complete, its outcome is appended to `outcomes`."""
    count = content.shares.task_progress().counter("0")
    for (scope, region), files in sorted(
        _partitions(content), key=lambda partition: _order(maker, *partition[0])
    ):
        entries = size = position = 0
        for file in files:
            for block in open_verified(content.roots, file):
                if (rows := maker.rows(file.scope, block)) is not None:
                    entries += rows.num_rows
                    yield rows
            size += file.bytes
            position = file.end_position
            count(file.entries, file.bytes)
        outcomes.append(RegionOutcome(scope, region, entries, size, position))


def _partitions(content: Records) -> Iterator[tuple[tuple[str, str], Iterable[StoredFile]]]:
    for number in content.shares.numbers:
        yield from content.shares.partition_files(number)


def _order(maker: RowMaker, scope: str, region: str) -> tuple[str, int]:
    return maker.targets[scope], int(region)


def _write_csv(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: _Hashed) -> None:
    for text in csv_texts(batches, schema.names):
        sink.write(text.encode())


def _write_json(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: _Hashed) -> None:
    for text in json_texts(batches, schema.names, raw=JSON_COLUMNS):
        sink.write(text.encode())


class _FileObject(io.RawIOBase):
    """A writer as the file object that pyarrow expects."""

    def __init__(self, writer: _Hashed) -> None:
        super().__init__()
        self._writer = writer
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        self._writer.write(view)
        self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._size


def _write_parquet(batches: Iterator[pa.RecordBatch], schema: pa.Schema, sink: _Hashed) -> None:
    group: list[pa.RecordBatch] = []
    with pq.ParquetWriter(
        pa.PythonFile(_FileObject(sink), mode="w"), schema, compression="zstd", write_page_checksum=True
    ) as writer:
        for batch in batches:
            group.append(batch)
            full = sum(part.nbytes for part in group) >= _GROUP_BYTES
            if full or sum(part.num_rows for part in group) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(group, schema))
                group = []
        writer.write_table(pa.Table.from_batches(group, schema))
