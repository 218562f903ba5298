"""Sorting records into log files: each in its group's, in order, in bounded memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebackup.errors import EnvironmentProblem
from lakebackup.formats.logs.events import captured_schema
from lakebackup.formats.logs.logfile import LogFileWriter, LogPlace, Scratch, read_log_file
from lakebackup.rows.backups import DataFile
from lakebackup.storage import open_storage
from lakebackup_jobs.logs.capture.spool import Group, Spool, split

ROOT = Path(__file__).parents[4]
BACKUP = "20260131T134511Z-0a1b2c3d"
GROUPS = st.builds(
    Group,
    st.sampled_from(["s1", "s2"]),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(["default", "write"]),
    st.sampled_from(["put", "delete"]),
)


def records(groups: list[Group], begin: int = 0, size: int = 3) -> pa.RecordBatch:
    rows = [
        {
            **group._asdict(), "key": b"%d" % seq, "value": b"v" * size, "start_ts": seq,
            "commit_ts": seq + 1, "type": "P", "seq": seq, "sub": 0, "offset": seq,
        }
        for seq, group in enumerate(groups, begin)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, captured_schema())


@dataclass
class SpooledFiles:
    """The files that a spool makes of records, in a folder."""

    folder: Path
    scratch: Scratch
    files: list[dict[str, Any]] = field(default_factory=list)

    def open(self, group: Group) -> LogFileWriter:
        log_place = LogPlace("task", BACKUP, group.table_id, group.region, group.cf, group.op, group.store)
        return LogFileWriter(log_place, self.scratch)

    def publish(self, writer: LogFileWriter) -> None:
        group = Group(*(getattr(writer.file_key, name) for name in Group._fields))
        self.files.append({"group": group, **writer.publish(open_storage(str(self.folder)))})

    def of(self, group: Group) -> list[int]:
        """The offsets of a group's records as its files have them, file after file."""
        offsets = []
        for columns in sorted(self.files, key=lambda f: int(f["start_position"])):
            if columns["group"] == group:
                row = DataFile(
                    destination="d", added_in=1, **{k: v for k, v in columns.items() if k != "group"}
                )
                for batch in read_log_file(open_storage(str(self.folder)), row, None):
                    offsets += batch["seq"].to_pylist()
        return offsets


@given(groups=st.lists(GROUPS, max_size=30))
def test_records_are_split_by_group(groups: list[Group]) -> None:
    offsets_by_group = {group: piece["seq"].to_pylist() for group, piece in split(records(groups))}
    assert offsets_by_group == {
        group: [offset for offset, record_group in enumerate(groups) if record_group == group]
        for group in dict.fromkeys(groups)
    }


@settings(max_examples=settings.default.max_examples // 4)
@given(
    batches=st.lists(st.lists(GROUPS, max_size=30), max_size=6), held_bytes=st.sampled_from([0, 500, 10**6])
)
def test_every_record_is_in_its_file(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Group]], held_bytes: int
) -> None:
    with Scratch() as scratch:
        spooled = SpooledFiles(tmp_path_factory.mktemp("spool"), scratch)
        spool, offset = Spool(spooled.open, spooled.publish, held_bytes=held_bytes), 0
        for groups in batches:
            spool.add(records(groups, offset))
            offset += len(groups)
        spool.finish()
        flat = [group for groups in batches for group in groups]
        assert sum(f["entries"] for f in spooled.files) == len(flat)
        for group in set(flat):
            assert spooled.of(group) == [
                offset for offset, record_group in enumerate(flat) if record_group == group
            ]


def test_a_file_is_closed_when_it_is_large(tmp_path: Path) -> None:
    group = Group("s", 1, 2, "write", "put")
    with Scratch() as scratch:
        spooled = SpooledFiles(tmp_path, scratch)
        spool = Spool(spooled.open, spooled.publish, held_bytes=50_000, most_raw=200_000)
        for offset in range(0, 1000, 10):
            spool.add(records([group] * 10, offset, size=1000))
        spool.finish()
        assert spooled.of(group) == list(range(1000))
    assert len(spooled.files) > 5
    # The frame of the batch's description comes on top.
    assert max(f["raw_bytes"] for f in spooled.files) <= 200_000 + 10_000
    assert len({f["path"] for f in spooled.files}) == len(spooled.files)


@pytest.mark.long
def test_a_hot_region_takes_no_more_memory_than_a_quiet_one(tmp_path: Path) -> None:
    """192 MiB, nearly all of one region, while 8 MiB may be held. Its own process measures the memory."""
    code = f"from tests.unit.jobs.logs.test_log_spool import measured; measured({str(tmp_path)!r})"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    memory = json.loads(process.stdout)
    assert memory["raw"] > 192 << 20
    assert memory["peak"] < 64 << 20
    assert memory["peak"] < memory["early"] + (8 << 20)
    assert memory["process"] < 160 << 20


def measured(folder: str) -> None:
    """Print the peaks of Arrow's memory, early and overall, the growth of the process, and the raw bytes."""
    batches = hot(48, 4 << 20)
    first, pool = next(batches), pa.default_memory_pool()
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Scratch() as scratch:
        spooled = SpooledFiles(Path(folder), scratch)
        spool = Spool(spooled.open, spooled.publish, held_bytes=8 << 20)
        for index, batch in enumerate(chain([first], batches)):
            spool.add(batch)
            if index == 15:
                early = pool.max_memory()
        spool.finish()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin
    raw = sum(f["raw_bytes"] for f in spooled.files)
    print(json.dumps({"raw": raw, "peak": pool.max_memory(), "early": early, "process": grown << 10}))


def hot(count: int, size: int) -> Iterator[pa.RecordBatch]:
    """So many batches of about `size` bytes, nearly all of one region."""
    rng = np.random.default_rng(1)
    rows = size // 1024
    for number in range(count):
        regions = np.where(rng.random(rows) < 0.95, 1, rng.integers(2, 302, rows))
        values = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(1024), rows, [None, pa.py_buffer(rng.bytes(rows * 1024))]
        ).cast(pa.binary())
        offsets = np.arange(number * rows, (number + 1) * rows)
        constant = {"store": "s", "table_id": 5, "cf": "write", "op": "put", "type": "P", "sub": 0}
        columns: dict[str, Any] = {
            "region": pa.array(regions),
            "key": pa.array(offsets.astype("S"), pa.binary()),
            "value": values,
            **{name: pa.array(offsets) for name in ("start_ts", "commit_ts", "seq", "offset")},
        }
        for name, value in constant.items():
            columns[name] = pa.repeat(pa.scalar(value, captured_schema().field(name).type), rows)
        yield pa.RecordBatch.from_arrays(
            [columns[name] for name in captured_schema().names], schema=captured_schema()
        )


def test_a_failed_publication_ends_the_spool(tmp_path: Path) -> None:
    groups = [Group("s", region, 2, "write", "put") for region in range(50)]
    with Scratch() as scratch:
        spooled = SpooledFiles(tmp_path, scratch)

        def publish(writer: LogFileWriter) -> None:
            if writer.file_key.region == 20:
                raise EnvironmentProblem("the storage is away")
            spooled.publish(writer)

        spool = Spool(spooled.open, publish)
        spool.add(records(groups))
        with pytest.raises(EnvironmentProblem, match="the storage is away"):
            spool.finish()
    assert 20 not in {file["group"].region for file in spooled.files}
