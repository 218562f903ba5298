"""A full destination: a small file system, on which writes really fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.disks import fill, small_disk
from tests.support.faults import catalog_rows, expire_leases, rows_of, stored_records
from tests.support.runs import Lab

from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def small(spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path: Path) -> Iterator[Lab]:
    """A destination on a file system of 8 MiB."""
    with small_disk(tmp_path, "8m") as folder:
        yield Lab(spark, broker.bootstrap, folder, empty_catalog)


@pytest.mark.parametrize(
    "rooms", [(1, 6, 9), pytest.param(range(10), marks=pytest.mark.long)], ids=["few", "all"]
)
def test_a_backup_fails_cleanly_until_there_is_room(
    small: Lab, topic: Callable[..., str], capsys: pytest.CaptureFixture[str], rooms: Sequence[int]
) -> None:
    name = topic("disk", partitions=2)
    truth.produce(small.bootstrap, name, rows_of(2, 10))
    assert small.backup(name)["entries"] == 20
    truth.produce(small.bootstrap, name, rows_of(2, 2_000, 10))
    catalog_before = catalog_rows(small)
    command = [
        "backup", "topics", name, "--repo", str(small.folder), "--source", "lab", "--codec", "null", "--json",
        "--bootstrap-server", small.bootstrap, "--groups", "none",
    ]  # fmt: skip
    filler = small.folder.joinpath("filler")
    # With more room each time, the backup gets further: a lease, data, a part, the manifest, the catalog.
    for free in (0, *(8_192 << n for n in rooms)):
        fill(filler, free)
        code = main(command, spark=small.spark)
        message = capsys.readouterr().err
        if code == 0:
            break
        assert code == 6, message
        assert "No space left" in message
        assert catalog_rows(small) == catalog_before
        filler.unlink()
        expire_leases(small.folder)  # perhaps there was no room to release it
    records, expected = stored_records(small), truth.contents(small.bootstrap, name)
    assert {p: len(rows) for p, rows in records.items()} == {p: len(rows) for p, rows in expected.items()}
    assert code == 0
    assert records == expected
