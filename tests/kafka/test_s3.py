"""Topics and snapshots backed up to S3 and restored from there: nothing of it is different from a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from tests.support import kafka_truth as truth
from tests.support.following import following, until_stored
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms
from tests.support.s3 import put_catalog
from tests.support.s3_faults import FaultProxy
from tests.support.s3_roles import acting_as
from tests.support.spark_cluster import SparkCluster

from lakebackup.storage import open_storage
from lakebackup_jobs.targets.settings_before import is_suspended
from lakebackup_jobs.upkeep import rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands
    from tests.support.s3 import S3Proxy

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.s3]


Make = Callable[..., str]


@pytest.fixture
def place(s3: S3Proxy, empty_catalog: Path) -> str:
    """A destination with a catalog without rows."""
    return put_catalog(f"s3://{s3.bucket()}/backups", empty_catalog)


class S3Lab(Lab):
    """A destination in S3, which has its catalog."""

    def __init__(self, spark: SparkSession, bootstrap: str, uri: str) -> None:
        super().__init__(spark, bootstrap, cast("Path", uri), cast("Path", None))

    def make_catalog(self) -> None:
        """It is there."""


@pytest.fixture
def lab(spark: SparkSession, broker: Broker, place: str) -> S3Lab:
    return S3Lab(spark, broker.bootstrap, place)


def records(partition: int, first: int, count: int) -> list[Record]:
    return [
        Record(partition, b"key-%d" % (i % 50), b"value %d" % i, (), now_ms() - 3_600_000 + i)
        for i in range(first, first + count)
    ]


def test_topics_go_there_and_come_back(
    lab: S3Lab, s3: S3Proxy, place: str, topic: Make, cli: Commands
) -> None:
    name, copy = topic("there", partitions=2), topic("copy", partitions=2)
    truth.produce(lab.bootstrap, name, records(0, 0, 300) + records(1, 0, 200))
    first = lab.backup(name)
    truth.produce(lab.bootstrap, name, records(1, 200, 100))
    second = lab.backup(name)
    assert (first["entries"], second["kind"], second["entries"]) == (500, "differential", 100)

    listed = cli.rows("list", "--repo", place)
    assert [row["backup_id"] for row in listed] == [second["backup_id"], first["backup_id"]]
    assert all(row["intact"] for row in listed)
    for row in cli.rows("files", second["backup_id"], "--repo", place):
        bucket, _, key = place.removeprefix("s3://").partition("/")
        sent = s3.client().head_object(Bucket=bucket, Key=f"{key}/{row['path']}")["Metadata"]
        assert sent["lakebackup-last-position"] == str(row["end_position"] - 1)
        assert sent["lakebackup-max-ts"] == str(row["max_ts"])
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)


def test_a_role_that_deletes_nothing_backs_topics_up_and_leaves_none_suspended(
    lab: S3Lab, s3: S3Proxy, topic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, copy = topic("there"), topic("copy")
    truth.produce(lab.bootstrap, name, records(0, 0, 300))
    with FaultProxy(s3.port) as proxy, acting_as("append-only", proxy):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        first = lab.backup(name)
        truth.produce(lab.bootstrap, name, records(0, 300, 100))
        second = lab.backup(name)
        assert (first["entries"], second["entries"]) == (300, 100)
        lab.restore(name, maps={name: copy})
        assert "DELETE" in proxy.methods()
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)
    assert not is_suspended(truth.settings(lab.bootstrap, copy))


@pytest.mark.long
def test_every_verb_works_there(
    lab: S3Lab,
    place: str,
    topic: Make,
    cli: Commands,
    tmp_path: Path,
    empty_catalog: Path,
) -> None:
    name = topic("there", partitions=2)
    copies = iter([topic(f"copy{i}", partitions=2) for i in range(2)])

    def comes_back() -> None:
        copy = next(copies)
        lab.restore(name, maps={name: copy})
        assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)

    truth.produce(lab.bootstrap, name, records(0, 0, 300) + records(1, 0, 200))
    first = lab.backup(name)
    truth.produce(lab.bootstrap, name, records(1, 200, 100))
    second = lab.backup(name)
    assert cli.rows("sql", "SELECT sum(entries) AS n FROM files", "--repo", place) == [{"n": 600}]
    told, *changes = cli.rows("diff", first["backup_id"], second["backup_id"], "--repo", place)
    assert [(row["change"], row["entries"]) for row in (*told["totals"], *changes)] == [("added", 100)] * 2
    comes_back()
    lab.restore(name, target=f"dir:{tmp_path}/out")
    back: dict[int, list[Record]] = {}
    for _, record in truth.records_below(tmp_path / "out"):
        back.setdefault(record.partition, []).append(record)
    assert back == truth.contents(lab.bootstrap, name)

    merged = lab.merge(1)
    assert (merged["kind"], merged["files"], merged["made_files"]) == ("full", 3, 2)
    pruned = lab.prune(days=0)
    assert (pruned["files"], pruned["of_backups"]) == (3, 2)
    storage = open_storage(place)
    assert [found.path for found in storage.list("lab/") if found.path.endswith(".data")] == [
        row["path"] for row in cli.rows("files", merged["backup_id"], "--repo", place)
    ]
    checked = lab.verify()
    assert (checked["ok"], checked["missing"], checked["damaged"], checked["orphan"]) == (3, 0, 0, 0)

    for found in storage.list("catalog/"):
        storage.delete(found.path)
    put_catalog(place, empty_catalog)  # else Spark would make the tables, which takes long
    made = rebuild.run(rebuild.RebuildRequest(place), spark=lab.spark, reporter=lab.reporter)
    assert made["backups"] == {"deleted": 2, "complete": 1}
    comes_back()


@pytest.mark.long
def test_following_goes_on_where_it_stopped(lab: S3Lab, place: str, topic: Make, cli: Commands) -> None:
    name = topic("followed")
    for first in (0, 40):
        with following(lab, name) as run:
            for start in (first, first + 20):
                truth.produce(lab.bootstrap, name, records(0, start, 20))
                until_stored(run, lab, name)
        assert isinstance(run.join(), dict), run.join()
    kinds = cli.rows("sql", "SELECT kind, sum(entries) AS n FROM backups GROUP BY kind", "--repo", place)
    assert {row["kind"] for row in kinds} == {"full", "log"}
    assert sum(row["n"] for row in kinds) == 80


ROWS = [Record(i % 4, b"key %d" % i, b"value %d" % i, (), 1_600_000_000_000 + i) for i in range(400)]
# Commands one behind the other in one process, so that the cluster starts its executors once.
DRIVER = """
import json, sys
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.cli import main
restore_snapshot._LITTLE = 0  # its tasks are tried here, and it begins them with gigabytes
for arguments in json.load(sys.stdin):
    code = main(arguments)
    if code:
        sys.exit(code)
"""
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def run(cluster: SparkCluster, *commands: list[str]) -> None:
    """Carries the commands out on the cluster; fails with what was said when one does."""
    conf = [word for key, value in SETTINGS.items() for word in ("--spark-conf", f"{key}={value}")]
    asked = [[*command, "--master", cluster.master, *conf] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.long
def test_topics_and_a_snapshot_go_to_s3_and_come_back(
    broker: Broker, topic: Callable[..., str], s3: S3Proxy, tmp_path: Path
) -> None:
    name = topic("orders", partitions=4)
    truth.produce(broker.bootstrap, name, ROWS)
    tree, restored = tmp_path / "tablet", tmp_path / "restored"
    files = {f"{n % 3}/{n:06d}.sst": os.urandom(n) for n in range(2500)}
    for path, data in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    kafka, place = ["--bootstrap-server", broker.bootstrap, "--groups", "none"], f"s3://{s3.bucket()}/kept"

    with SparkCluster(tmp_path / "cluster") as cluster:
        run(
            cluster,
            ["backup", "topics", name, *kafka, "--source", "shop", "--repo", place],
            ["backup", "snapshot", str(tree), "--source", "store", "--repo", place],
            [
                "restore", "topics", name, "--source", "shop", "--repo", place,
                "--to", f"kafka://{broker.bootstrap}", "--map", f"{name}={name}-back",
            ],
            ["restore", "snapshot", "--source", "store", "--repo", place, "--to", str(restored)],
        )  # fmt: skip
        assert len(list(tmp_path.glob("cluster/work-*/app-*/*/stderr"))) == 2, "one executor a worker"
    assert truth.contents(broker.bootstrap, f"{name}-back") == truth.contents(broker.bootstrap, name)
    truth.delete_topic(broker.bootstrap, f"{name}-back")
    found = {path.relative_to(restored).parts[-2:]: path.read_bytes() for path in restored.rglob("*.sst")}
    assert found == {Path(path).parts: data for path, data in files.items()}
