"""Compacted topics: generations and `lakebackup compact`, on a broker that really compacts."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import compacted
from tests.support import kafka_truth as truth
from tests.support.compacted import CLEANED, FILLER, Latest, clean, latest, now_ms, put, stored
from tests.support.faults import Killed, expire_leases, shown, watched
from tests.support.kafka_truth import Record
from tests.support.runs import Lab

from lakebackup.errors import EnvironmentProblem, NotFound, Refused
from lakebackup.store import CatalogReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


def restored(lab: Lab, name: str, tmp_path: Path, **changes: Any) -> Latest:
    """The latest of each key as a restore brings it back, without the test's own filler."""
    out = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
    lab.restore(name, target=f"dir:{out}", **changes)
    return without_filler(latest(stored(out / "topics" / name)))


def without_filler(found: Latest) -> Latest:
    return {place: value for place, value in found.items() if place[1] != FILLER}


def in_kafka(lab: Lab, name: str) -> Latest:
    return without_filler(latest(r for _, r in truth.read(lab.bootstrap, name)))


def generations(lab: Lab, name: str) -> list[int]:
    rows = sorted(shown(lab)["scopes"], key=lambda row: row["backup_id"])
    opened = CatalogReader.open(str(lab.folder))
    assert opened is not None
    numbers = {row["backup_id"]: row["number"] for row in shown(lab)["backups"]}
    rows.sort(key=lambda row: numbers[row["backup_id"]])
    return [row["generation"] for row in rows if row["scope"] == name]


def test_a_key_deleted_between_two_backups_does_not_come_back(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("deleted", partitions=2, **CLEANED, **{"delete.retention.ms": "300"})
    put(lab.bootstrap, name, [(p, b"k%d" % i, b"v") for p in range(2) for i in range(5)])
    lab.backup(name)
    put(lab.bootstrap, name, [(0, b"k1", None), (1, b"k2", b"new")])
    clean(lab.bootstrap, name, 2, gone=lambda r: (r.partition, r.key) == (0, b"k1"))
    done = lab.backup(name)
    assert (done["kind"], done["generations"]) == (
        "differential",
        [{"topic": name, "generation": 1, "because": "tombstones"}],
    )
    expected = {(p, b"k%d" % i): b"v" for p in range(2) for i in range(5)} | {(1, b"k2"): b"new"}
    del expected[0, b"k1"]
    assert restored(lab, name, tmp_path) == in_kafka(lab, name) == expected
    assert generations(lab, name) == [0, 1]


def test_compact(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("compact", partitions=2, **{"cleanup.policy": "compact"})
    plain = topic("plain")
    for cycle in range(3):
        put(lab.bootstrap, name, [(i % 2, b"k%d" % (i % 7), b"%d-%d" % (cycle, i)) for i in range(50)])
        put(lab.bootstrap, plain, [(0, b"k", b"v")])
        before = lab.backup(name, plain, growth=100)
    expected = in_kafka(lab, name)
    told = lab.compact(dry_run=True)
    assert [t["topic"] for t in told["topics"]] == [name]
    assert len(shown(lab)["backups"]) == 3
    done = lab.compact()
    assert (done["entries"], done["kept_entries"], done["kept_files"]) == (150, 14, 2)
    assert done["left_out"] == [{"topic": plain, "because": "its cleanup.policy does not say compact"}]
    assert restored(lab, name, tmp_path) == expected
    assert restored(lab, name, tmp_path, to_ts=before["end_ts"]) == expected
    assert generations(lab, name) == [0, 0, 0, 1]
