"""On a real cluster, plans are made by Spark, and by DuckDB where the cluster cannot read the catalog."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.made_backups import MadeBackups, Record
from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

# Runs commands as if every catalog were large.
DRIVER = """
import json, sys
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle import planning

planning._SPARK_FILES = 0
SparkEngine._on_duckdb = lambda *_: None
sys.exit(any(main(command) for command in json.load(sys.stdin)))
"""


def run(cluster: SparkCluster, *commands: Sequence[str]) -> list[dict[str, Any]]:
    """Run commands with --json on the cluster; returns what they print."""
    shared_flags = ["--master", cluster.master, "--json", "--spark-conf", "spark.executor.memory=512m"]
    process = subprocess.run(
        [sys.executable, "-c", DRIVER], input=json.dumps([[*command, *shared_flags] for command in commands]),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == 0, f"{process.stdout[-2000:]}\n{process.stderr[-4000:]}"
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


def notes(events: Sequence[dict[str, Any]]) -> list[str]:
    return [str(event["message"]) for event in events if event.get("event") == "note"]


def test_a_restore_is_planned_on_the_cluster(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path / "backups")
    for n in range(2):
        backups.backup([[Record(p, n, ts=1000 * n + 500, key=b"k", value=b"%d" % n)] for p in (0, 1)])
    backups.flush()
    restore = [
        "restore",
        "topics",
        "orders",
        "--repo",
        str(backups.folder),
        "--to",
        f"dir:{tmp_path / 'out'}",
    ]
    with SparkCluster(tmp_path / "cluster") as cluster:
        events = run(cluster, [*restore, "--dry-run"], [*restore, "--dry-run", "--engine", "duckdb"])
        (note,) = notes(events)
        assert note.startswith("planning on Spark: the catalog has ")
        assert note.endswith(f"tasks run on {cluster.master}")
        on_spark, on_duckdb = (event for event in events if event.get("event") == "result")
        assert on_spark == on_duckdb
        assert on_spark["files"] == 4
