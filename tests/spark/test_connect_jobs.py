"""The jobs on a Spark Connect server, and with spark-submit."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyspark
import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

import lakebackup_jobs
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.runtime.session import connect_server

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

ROWS = [Record(0, b"k%d" % i, b"v%d" % i, (("h", None),), 1_600_000_000_000 + i) for i in range(50)]


@pytest.fixture(scope="module")
def remote() -> Iterator[str]:
    """The URL of a Spark Connect server."""
    with connect_server(extra={"spark.master": "local[2]"}) as address:
        yield address


def lakebackup(*arguments: str | Path) -> dict[str, Any]:
    """Run a command in its own process, which can have a Connect session; returns its result."""
    process = subprocess.run(
        [sys.executable, "-m", "lakebackup_jobs", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        # Without Java on the PATH: the server does all of Spark's work.
        env={"PATH": "", "HOME": os.environ.get("HOME", "/")},
    )
    assert (process.returncode, process.stderr) == (0, ""), process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert result["event"] == "result"
    return dict(result)


def test_every_job_on_a_server(
    remote: str, broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, folder = topic("connect"), tmp_path / "backups"
    backup = (
        "backup", "topics", name, "--repo", folder, "--bootstrap-server", broker.bootstrap,
        "--remote", remote, "--groups", "none",
    )  # fmt: skip
    truth.produce(broker.bootstrap, name, ROWS[:30])
    assert lakebackup(*backup)["entries"] == 30
    truth.produce(broker.bootstrap, name, ROWS[30:])
    second = lakebackup(*backup)
    assert (second["kind"], second["entries"]) == ("differential", 20)

    checked = lakebackup("verify", "--repo", folder, "--decode", "--remote", remote)
    assert (checked["missing"], checked["changed"], checked["damaged"]) == (0, 0, 0)
    shutil.rmtree(folder / "catalog")
    rebuilt = lakebackup("catalog", "rebuild", "--repo", folder, "--remote", remote)
    assert (rebuilt["backups"], rebuilt["files"]) == ({"complete": 2}, 2)

    target = tmp_path / "out"
    restored = lakebackup(
        "restore", "topics", name, "--repo", folder, "--to", f"dir:{target}", "--remote", remote
    )
    assert restored["entries"] == 50
    keys = []
    for file in sorted((target / "topics" / name / "partition=0").iterdir()):
        with file.open("rb") as stream:
            keys += [record["key"] for record in fastavro.reader(stream) if isinstance(record, dict)]
    assert keys == [row.key for row in ROWS]


def test_spark_submit_runs_a_verb(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> None:
    name, folder = topic("submit"), tmp_path / "backups"
    truth.produce(broker.bootstrap, name, ROWS)
    options = subprocess.run(
        [sys.executable, "-m", "lakebackup_jobs.runtime.session"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    program = Path(lakebackup_jobs.__file__).with_name("__main__.py")
    process = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *shlex.split(options),
            "--master", "local[2]", str(program), "backup", "topics",
            name, "--repo", str(folder), "--bootstrap-server", broker.bootstrap, "--groups", "none", "--json",
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["entries"] == len(ROWS)
    reader = CatalogReader.require(str(folder))
    (row,) = reader.rows("list_backups", source=None)
    assert (row["state"], row["entries"]) == ("complete", len(ROWS))
