"""The task of an archive's export, which writes data files of a topic as one .cbb file."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakebackup.formats.archives import cbb
from lakebackup.storage import open_storage
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format.records import (
    HEADER_COUNT,
    KEY,
    KEY_LENGTH,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
)
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.task import Task

_NS_IN_MS = 1_000_000
_CAS_LIMIT = 1 << 64  # a CAS has 64 bits
_COLUMNS = (PARTITION, OFFSET, TIMESTAMP, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH)


def cas_of(ts: int) -> int:
    """Return the CAS of a record with this timestamp (ms): nanoseconds since 1970, as a hybrid clock has.

    0 if there is no timestamp, or if it does not fit.
    """
    return ts * _NS_IN_MS if 0 <= ts < _CAS_LIMIT // _NS_IN_MS else 0


@dataclass(frozen=True, slots=True)
class WriteJob(Task):
    """Writes a .cbb file from the data files of a share, whose partition is the path of the .cbb file."""

    COLUMNS = (
        "path STRING, bytes BIGINT, entries BIGINT, keyless BIGINT, headers BIGINT, seqnos STRING, "
        "error STRING"
    )

    plan: PlanShares
    roots: Roots

    def run(self, number: int) -> Mapping[str, Any]:
        storage = open_storage(self.plan.uri, private=False)
        (files,) = self.plan.rows(number, StoredFile)
        (path,) = files.share.partition
        rows = Rows(files, self.roots, self.plan.task_progress().counter(str(number)))
        with tempfile.TemporaryDirectory(prefix="lakebackup-cbb-") as folder:
            file = Path(folder, "data.cbb")
            entries = cbb.write(file, rows)
            with file.open("rb") as stream, storage.writer() as writer:
                shutil.copyfileobj(stream, writer, 1 << 22)
                writer.commit(path, if_absent=False)
            size = file.stat().st_size
        return {
            "path": path,
            "bytes": size,
            "entries": entries,
            "keyless": rows.keyless,
            "headers": rows.headers,
            "seqnos": json.dumps(rows.last_seqnos),
        }


class Rows:
    """Yields the records of data files as rows of cbb_msg, once, and counts what the format cannot store.

    `keyless`: the number of records without a key, which get a key of vbucket and offset. `headers`: the
    number of records with headers, which are dropped. `last_seqnos`: the last sequence number of each
    vbucket. `on_file` is called with the records and bytes of each file that is done.
    """

    def __init__(
        self, files: Iterable[StoredFile], roots: Roots, on_file: Callable[[int, int], None]
    ) -> None:
        self._files, self._roots, self._on_file = files, roots, on_file
        self.keyless = self.headers = 0
        self.last_seqnos: dict[int, int] = {}

    def __iter__(self) -> Iterator[cbb.NewRow]:
        for file in self._files:
            for block in open_verified(self._roots, file):
                self.headers += int((block.rows[:, HEADER_COUNT] > 0).sum())
                data = block.data.data
                for vbucket, offset, ts, key, key_length, value, length in block.rows[:, _COLUMNS].tolist():
                    seqno = offset + 1
                    if key_length < 0:
                        self.keyless += 1
                    yield (
                        data[key : key + key_length] if key_length >= 0 else f"{vbucket}-{offset}".encode(),
                        vbucket,
                        cas_of(ts),
                        seqno.to_bytes(8, "big"),
                        data[value : value + length] if length >= 0 else None,
                        seqno,
                    )
                    self.last_seqnos[vbucket] = seqno
            self._on_file(file.entries, file.bytes)
