"""Restores a change feed's log into a Delta table: MB of records per second and core.

The goal is 200 TB in 6 hours on 66 nodes, which is 147 MB/s per node.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from tests.benchmarks.measure import Sample, rounds
from tests.benchmarks.ours import Session
from tests.benchmarks.report import COST, cost, markdown, report_lines
from tests.support.catalogs import backup_id, made_backup
from tests.support.made_backups import MadeBackups

from lakebackup.formats.logs.events import DEFAULT, PUT, PUT_TYPE, WRITE, stored_schema
from lakebackup.formats.logs.logfile import LogFileWriter, LogPlace, Scratch
from lakebackup.rows.backups import DataFile
from lakebackup.rows.base import CHANGES

NODE_MB_S = 147
_EVENTS, _VALUE, _FILE = 1_000_000, 1_000, 50_000


def restoring(session: Session, folder: Path, runs: int, scale: float) -> str:
    """Return Markdown for a million events of 1 KB, each key twice, with values in and outside the writes."""
    cores, target = os.cpu_count() or 1, folder / "out"

    def restore(destination: Path) -> Sample | str:
        shutil.rmtree(target, ignore_errors=True)
        return session.run(["log", "restore", "bench", "--repo", destination, "--to", f"delta:{target}"])

    rows = []
    for name, separate_values in (("in the writes", False), ("apart", True)):
        destination = folder / ("apart" if separate_values else "within")
        mb = make(destination, round(_EVENTS * scale), separate=separate_values) / 1e6
        samples = rounds({name: partial(restore, destination)}, runs)[name]
        rate = median(mb / sample.cost.seconds for sample in report_lines(samples))
        cpu_rate = median(mb / sample.cost.cpu_s for sample in report_lines(samples))
        rows.append([name, *cost(samples), f"{rate:.1f}", f"{rate / cores:.1f}", f"{cpu_rate:.1f}"])
        shutil.rmtree(destination)
    table = markdown(["values", *COST, "MB/s", "MB/s a core", "MB/s a CPU second"], rows)
    return f"{table}\n\nMB are of records as captured. The goal is {NODE_MB_S} MB/s a node."


def make(folder: Path, events: int, *, separate: bool) -> int:
    """Make a log with one flush of `events` events. Returns their bytes before compression."""
    folder.mkdir(parents=True)
    log = MadeBackups(folder, "bench")
    name, rng = backup_id(1), np.random.default_rng(1)
    size = 0
    for number, begin in enumerate(range(0, events, _FILE)):
        count = min(_FILE, events - begin)
        ts = np.arange(begin, begin + count, dtype=np.int64) * 2 + 10
        keys = [b"key-%012d" % key for key in rng.permutation(count) + (begin // 2)]
        noise = rng.integers(0, 64, count * _VALUE, np.uint8)  # as dense as text
        values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_VALUE), count, [None, pa.py_buffer(noise)])
        batch = {
            "key": pa.array(keys, pa.binary()), "value": values.cast(pa.binary()), "start_ts": ts - 1,
            "commit_ts": ts, "type": pa.array([PUT_TYPE] * count), "seq": np.zeros(count, np.int64),
            "sub": np.zeros(count, np.int32),
        }  # fmt: skip
        nulls = {
            name: pa.nulls(count, stored_schema().field(name).type) for name in ("value", "commit_ts", "type")
        }
        kinds = {
            WRITE: {**batch, "value": nulls["value"]},
            DEFAULT: {**batch, **nulls, "value": batch["value"]},
        }
        for cf, columns in kinds.items() if separate else [(WRITE, batch)]:
            with Scratch() as scratch:
                log_file = LogPlace("bench", name, 1 + number % 4, number, cf, PUT, "1")
                writer = LogFileWriter(log_file, scratch)
                writer.add(pa.RecordBatch.from_pydict(columns, stored_schema()))
                row = writer.publish(log.storage)
            size += row["raw_bytes"]
            log.add(DataFile(destination=log.destination, added_in=1, **row))
    common = {"source": "bench", "source_kind": CHANGES, "destination": log.destination, "codec": "zstd"}
    kind = {"kind": "log", "level": 1, "ts_domain": "ms", "start_ts": 0, "end_ts": 2 * events + 10}
    log.add(made_backup(1, **common, **kind))
    log.flush()
    return size
