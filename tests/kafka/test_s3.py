"""Topics and snapshots are backed up to S3 and restored from there, as with a folder."""

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


MakeTopic = Callable[..., str]


@pytest.fixture
def repo(s3: S3Proxy, empty_catalog: Path) -> str:
    """A repository with an empty catalog."""
    return put_catalog(f"s3://{s3.bucket()}/backups", empty_catalog)


class S3Lab(Lab):
    """A lab with a repository in S3, which has its catalog already."""

    def __init__(self, spark: SparkSession, bootstrap: str, uri: str) -> None:
        super().__init__(spark, bootstrap, cast("Path", uri), cast("Path", None))

    def make_catalog(self) -> None:
        """Do nothing, since the catalog exists."""


@pytest.fixture
def lab(spark: SparkSession, broker: Broker, repo: str) -> S3Lab:
    return S3Lab(spark, broker.bootstrap, repo)


def records(partition: int, first: int, count: int) -> list[Record]:
    return [
        Record(partition, b"key-%d" % (i % 50), b"value %d" % i, (), now_ms() - 3_600_000 + i)
        for i in range(first, first + count)
    ]


def test_topics_are_backed_up_to_s3_and_restored(
    lab: S3Lab, s3: S3Proxy, repo: str, topic: MakeTopic, cli: Commands
) -> None:
    name, copy_topic = topic("there", partitions=2), topic("copy", partitions=2)
    truth.produce(lab.bootstrap, name, records(0, 0, 300) + records(1, 0, 200))
    first_backup = lab.backup(name)
    truth.produce(lab.bootstrap, name, records(1, 200, 100))
    second_backup = lab.backup(name)
    assert (first_backup["entries"], second_backup["kind"], second_backup["entries"]) == (
        500,
        "differential",
        100,
    )

    listed = cli.rows("list", "--repo", repo)
    assert [row["backup_id"] for row in listed] == [second_backup["backup_id"], first_backup["backup_id"]]
    assert all(row["intact"] for row in listed)
    for row in cli.rows("files", second_backup["backup_id"], "--repo", repo):
        bucket, _, key = repo.removeprefix("s3://").partition("/")
        metadata = s3.client().head_object(Bucket=bucket, Key=f"{key}/{row['path']}")["Metadata"]
        assert metadata["lakebackup-last-position"] == str(row["end_position"] - 1)
        assert metadata["lakebackup-max-ts"] == str(row["max_ts"])
    lab.restore(name, maps={name: copy_topic})
    assert truth.contents(lab.bootstrap, copy_topic) == truth.contents(lab.bootstrap, name)


def test_a_role_without_delete_backs_up_and_leaves_no_topic_suspended(
    lab: S3Lab, s3: S3Proxy, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, copy_topic = topic("there"), topic("copy")
    truth.produce(lab.bootstrap, name, records(0, 0, 300))
    with FaultProxy(s3.port) as proxy, acting_as("append-only", proxy):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        first_backup = lab.backup(name)
        truth.produce(lab.bootstrap, name, records(0, 300, 100))
        second_backup = lab.backup(name)
        assert (first_backup["entries"], second_backup["entries"]) == (300, 100)
        lab.restore(name, maps={name: copy_topic})
        assert "DELETE" in proxy.methods()
    assert truth.contents(lab.bootstrap, copy_topic) == truth.contents(lab.bootstrap, name)
    assert not is_suspended(truth.settings(lab.bootstrap, copy_topic))


@pytest.mark.long
def test_every_verb_works_on_s3(
    lab: S3Lab,
    repo: str,
    topic: MakeTopic,
    cli: Commands,
    tmp_path: Path,
    empty_catalog: Path,
) -> None:
    name = topic("there", partitions=2)
    copies = iter([topic(f"copy{i}", partitions=2) for i in range(2)])

    def check_restore() -> None:
        copy_topic = next(copies)
        lab.restore(name, maps={name: copy_topic})
        assert truth.contents(lab.bootstrap, copy_topic) == truth.contents(lab.bootstrap, name)

    truth.produce(lab.bootstrap, name, records(0, 0, 300) + records(1, 0, 200))
    first_backup = lab.backup(name)
    truth.produce(lab.bootstrap, name, records(1, 200, 100))
    second_backup = lab.backup(name)
    assert cli.rows("sql", "SELECT sum(entries) AS n FROM files", "--repo", repo) == [{"n": 600}]
    summary, *changes = cli.rows(
        "diff", first_backup["backup_id"], second_backup["backup_id"], "--repo", repo
    )
    assert [(row["change"], row["entries"]) for row in (*summary["totals"], *changes)] == [("added", 100)] * 2
    check_restore()
    lab.restore(name, target=f"dir:{tmp_path}/out")
    restored: dict[int, list[Record]] = {}
    for _, record in truth.records_below(tmp_path / "out"):
        restored.setdefault(record.partition, []).append(record)
    assert restored == truth.contents(lab.bootstrap, name)

    merged = lab.merge(1)
    assert (merged["kind"], merged["files"], merged["made_files"]) == ("full", 3, 2)
    pruned = lab.prune(days=0)
    assert (pruned["files"], pruned["of_backups"]) == (3, 2)
    storage = open_storage(repo)
    assert [
        stored_object.path for stored_object in storage.list("lab/") if stored_object.path.endswith(".data")
    ] == [row["path"] for row in cli.rows("files", merged["backup_id"], "--repo", repo)]
    verification = lab.verify()
    assert (verification["ok"], verification["missing"], verification["damaged"], verification["orphan"]) == (
        3,
        0,
        0,
        0,
    )

    for stored_object in storage.list("catalog/"):
        storage.delete(stored_object.path)
    put_catalog(repo, empty_catalog)  # else Spark would create the tables, which takes long
    rebuilt = rebuild.run(rebuild.RebuildRequest(repo), spark=lab.spark, reporter=lab.reporter)
    assert rebuilt["backups"] == {"deleted": 2, "complete": 1}
    check_restore()


@pytest.mark.long
def test_following_continues_where_it_stopped(lab: S3Lab, repo: str, topic: MakeTopic, cli: Commands) -> None:
    name = topic("followed")
    for first in (0, 40):
        with following(lab, name) as run:
            for start in (first, first + 20):
                truth.produce(lab.bootstrap, name, records(0, start, 20))
                until_stored(run, lab, name)
        assert isinstance(run.join(), dict), run.join()
    kinds = cli.rows("sql", "SELECT kind, sum(entries) AS n FROM backups GROUP BY kind", "--repo", repo)
    assert {row["kind"] for row in kinds} == {"full", "log"}
    assert sum(row["n"] for row in kinds) == 80


RECORDS = [Record(i % 4, b"key %d" % i, b"value %d" % i, (), 1_600_000_000_000 + i) for i in range(400)]
# Runs commands one after the other in one process, so that the cluster starts its executors once.
DRIVER = """
import json, sys
from lakebackup_jobs.cli import main
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
    """Run the commands on the cluster. Fails with their output if one fails."""
    conf_flags = [word for key, value in SETTINGS.items() for word in ("--spark-conf", f"{key}={value}")]
    full_commands = [[*command, "--master", cluster.master, *conf_flags] for command in commands]
    process = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(full_commands), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == 0, f"{process.stdout[-2000:]}\n{process.stderr[-4000:]}"


@pytest.mark.long
def test_topics_and_a_snapshot_are_backed_up_to_s3_and_restored(
    broker: Broker, topic: Callable[..., str], s3: S3Proxy, tmp_path: Path
) -> None:
    name = topic("orders", partitions=4)
    truth.produce(broker.bootstrap, name, RECORDS)
    snapshot_folder, restored_folder = tmp_path / "tablet", tmp_path / "restored"
    files = {f"{n % 3}/{n:06d}.sst": os.urandom(n) for n in range(2500)}
    for path, data in files.items():
        (snapshot_folder / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot_folder / path).write_bytes(data)
    kafka_flags, repo = (
        ["--bootstrap-server", broker.bootstrap, "--groups", "none"],
        f"s3://{s3.bucket()}/kept",
    )

    with SparkCluster(tmp_path / "cluster") as cluster:
        run(
            cluster,
            ["backup", "topics", name, *kafka_flags, "--source", "shop", "--repo", repo],
            ["backup", "snapshot", str(snapshot_folder), "--source", "store", "--repo", repo],
            [
                "restore", "topics", name, "--source", "shop", "--repo", repo,
                "--to", f"kafka://{broker.bootstrap}", "--map", f"{name}={name}-back",
            ],
            ["restore", "snapshot", "--source", "store", "--repo", repo, "--to", str(restored_folder),
             "--runner", "spark"],  # its tasks are tried here
        )  # fmt: skip
        assert len(list(tmp_path.glob("cluster/work-*/app-*/*/stderr"))) == 2, "one executor a worker"
    assert truth.contents(broker.bootstrap, f"{name}-back") == truth.contents(broker.bootstrap, name)
    truth.delete_topic(broker.bootstrap, f"{name}-back")
    restored_files = {
        path.relative_to(restored_folder).parts[-2:]: path.read_bytes()
        for path in restored_folder.rglob("*.sst")
    }
    assert restored_files == {Path(path).parts: data for path, data in files.items()}
