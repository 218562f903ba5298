"""The same commands on a standalone Spark cluster of two workers, with everything kept on S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.s3 import S3Proxy

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.s3, pytest.mark.long]

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
            ["backup", "topics", name, *kafka, "--source", "shop", "--to", place],
            ["backup", "snapshot", str(tree), "--source", "store", "--to", place],
            [
                "restore", "topics", name, "--source", "shop", "--from", place,
                "--to", f"kafka://{broker.bootstrap}", "--map", f"{name}={name}-back",
            ],
            ["restore", "snapshot", "--source", "store", "--from", place, "--to", str(restored)],
        )  # fmt: skip
        assert len(list(tmp_path.glob("cluster/work-*/app-*/*/stderr"))) == 2, "one executor a worker"
    assert truth.contents(broker.bootstrap, f"{name}-back") == truth.contents(broker.bootstrap, name)
    truth.delete_topic(broker.bootstrap, f"{name}-back")
    found = {path.relative_to(restored).parts[-2:]: path.read_bytes() for path in restored.rglob("*.sst")}
    assert found == {Path(path).parts: data for path, data in files.items()}
