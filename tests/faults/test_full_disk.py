"""A destination that is full: a small file system of its own, on which writing really fails."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import expire_leases, rows_of, shown, stored
from tests.support.runs import Lab

from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def mount(folder: Path, options: str) -> bool:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    return done.returncode == 0


@pytest.fixture
def small(spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path: Path) -> Iterator[Lab]:
    """A destination on a file system of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if not mount(folder, "size=8m"):
        pytest.skip("a file system of a chosen size can be mounted by root only")
    try:
        yield Lab(spark, broker.bootstrap, folder, empty_catalog)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize(
    "rooms", [(1, 6, 9), pytest.param(range(10), marks=pytest.mark.long)], ids=["few", "all"]
)
def test_a_full_tmpfs(
    small: Lab, topic: Callable[..., str], capsys: pytest.CaptureFixture[str], rooms: Sequence[int]
) -> None:
    name = topic("disk", partitions=2)
    truth.produce(small.bootstrap, name, rows_of(2, 10))
    assert small.backup(name)["entries"] == 20
    truth.produce(small.bootstrap, name, rows_of(2, 2_000, 10))
    before = shown(small)
    command = [
        "backup", "topics", name, "--to", str(small.folder), "--source", "lab", "--codec", "null", "--json",
        "--bootstrap-servers", small.bootstrap, "--groups", "none",
    ]  # fmt: skip
    filler = small.folder.joinpath("filler")
    # With ever more room the backup comes ever further: a lease, data, a part, the manifest, the catalog.
    for free in (0, *(8_192 << n for n in rooms)):
        with filler.open("wb", buffering=0) as stream:
            fill(small.folder, stream.write, free)
        code = main(command, spark=small.spark)
        told = capsys.readouterr().err
        if code == 0:
            break
        assert code == 6, told
        assert "No space left" in told
        assert shown(small) == before
        filler.unlink()
        expire_leases(small.folder)  # there may have been no room to release it
    found, whole = stored(small), truth.contents(small.bootstrap, name)
    assert {p: len(rows) for p, rows in found.items()} == {p: len(rows) for p, rows in whole.items()}
    assert code == 0
    assert found == whole


def fill(folder: Path, write: Callable[[bytes], object], leave: int) -> None:
    """Use up the space of a file system but for some bytes."""
    found = os.statvfs(folder)
    room = found.f_bavail * found.f_frsize - leave
    for _ in range(room // 4096):
        write(b"\0" * 4096)
