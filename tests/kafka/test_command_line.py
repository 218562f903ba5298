"""The command line as a user sees it: with a real broker, real exit codes, and output into pipes.

Most commands run in the test process, on its Spark session. Commands that run in processes of their own are
tested in tests/unit/jobs/cli, test_connect_jobs.py and test_secured.py.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.kafka_truth import Record
from tests.support.private import private_file

from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SECRET = "hunter2-do-not-show"
RECORDS = [
    Record(
        i % 2, b"key %d" % i, None if i % 5 == 0 else b"value %d" % i, (("h", b"1"),), 1_600_000_000_000 + i
    )
    for i in range(200)
]


FinishedProcess = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Shop:
    """A topic, the repository of its backups, and the process of `lakebackup backup topics --json`."""

    bootstrap: str
    topic: str
    folder: Path
    backup: FinishedProcess
    spark: SparkSession

    def result(self) -> dict[str, Any]:
        return event(self.backup, "result")


def run(spark: SparkSession, *arguments: str | Path) -> FinishedProcess:
    """Run a command in the test process, on its Spark session."""
    words, stdout, stderr = [str(a) for a in arguments], io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
            patch.delenv(name)
        exit_code = main(words, spark=spark)
    return subprocess.CompletedProcess(words, exit_code, stdout.getvalue(), stderr.getvalue())


def event(process: FinishedProcess, kind: str) -> dict[str, Any]:
    (event_line,) = (line for line in map(json.loads, process.stdout.splitlines()) if line["event"] == kind)
    assert isinstance(event_line, dict)
    return event_line


def parse_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A topic whose backup command got a secret in its client properties."""
    folder = tmp_path_factory.mktemp("shop")
    name = f"shop-{folder.name}-{os.getpid()}"
    truth.create_topic(broker.bootstrap, name, 2, retention_ms="-1")
    truth.produce(broker.bootstrap, name, RECORDS)
    # This broker requires no password. So the client accepts the property and the run succeeds.
    client = f"bootstrap.servers={broker.bootstrap}\nsasl.password={SECRET}\n"
    properties = private_file(folder / "client.properties", client.encode())
    process = run(
        spark, "backup", "topics", name, "--repo", folder / "backups", "--kafka-config", properties, "--json",
        "--note", "the first", "--groups", "none",  # other tests' groups live on the same broker
    )  # fmt: skip
    yield Shop(broker.bootstrap, name, folder / "backups", process, spark)
    truth.delete_topic(broker.bootstrap, name)


def test_backup_with_json_prints_events_and_one_result(shop: Shop) -> None:
    process = shop.backup
    assert (process.returncode, process.stderr) == (0, "")
    events = [line["event"] for line in parse_lines(process.stdout)]
    assert events[0] == "start"
    assert events[-1] == "result"
    assert set(events) <= {"start", "progress", "result"}
    result = shop.result()
    assert (result["kind"], result["entries"], result["gaps"]) == ("full", 200, 0)


def test_no_secret_is_printed_or_stored(shop: Shop) -> None:
    assert SECRET not in shop.backup.stdout + shop.backup.stderr
    files_with_secret = [
        p for p in shop.folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()
    ]
    assert files_with_secret == []


# A program that runs commands one after the other in one process. A NUL ends the output of each.
RUN_COMMANDS = """
import json, sys
from lakebackup_jobs.cli import main
for arguments in json.load(sys.stdin):
    code = main(arguments)
    print(end="\\0")
    if code:
        sys.exit(code)
"""


def test_queries_and_restore_plans_need_no_java(shop: Shop) -> None:
    backup_id = shop.result()["backup_id"]
    count_query = "SELECT region, sum(entries) AS n FROM files GROUP BY region ORDER BY region"
    restore_command = ["restore", "topics", shop.topic, "--dry-run", "--to"]
    commands = [
        ["list", "--json"],
        ["show", backup_id[:20], "--json"],
        ["files", backup_id, "--json"],
        ["sql", count_query, "--csv"],
        [*restore_command, "dir:/nowhere/out", "--json"],
        # Without client configuration: planning a restore into Kafka queries the cluster, but starts no Java.
        [*restore_command, f"kafka://{shop.bootstrap}", "--map", f"{shop.topic}=new", "--explain"],
    ]
    process = subprocess.run(
        [sys.executable, "-c", RUN_COMMANDS],
        input=json.dumps([[*command, "--repo", str(shop.folder)] for command in commands]),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "", "HOME": "/nowhere"},
    )
    assert (process.returncode, process.stderr) == (0, "")
    *outputs, remaining_output = process.stdout.split("\0")
    assert (len(outputs), remaining_output) == (len(commands), "")
    (listed,) = parse_lines(outputs[0])
    assert (listed["backup_id"], listed["entries"], listed["note"]) == (backup_id, 200, "the first")
    (backup_details,) = parse_lines(outputs[1])
    assert [(t["scope"], t["entries"]) for t in backup_details["topics"]] == [(shop.topic, 200)]
    files = parse_lines(outputs[2])
    assert sum(file["entries"] for file in files) == 200
    for file in files:
        assert (shop.folder / file["path"]).stat().st_size == file["bytes"]
    assert outputs[3] == "region,n\n0,100\n1,100\n"
    assert parse_lines(outputs[4])[-1]["topics"][0]["entries"] == 200
    assert "SELECT" in outputs[5]


def test_restore_and_verify_print_only_results_into_pipes(shop: Shop, broker: Broker) -> None:
    copy_topic = f"{shop.topic}-copy"
    process = run(
        shop.spark, "restore", "topics", shop.topic, "--repo", shop.folder, "--to", f"kafka://{shop.bootstrap}",
        "--map", f"{shop.topic}={copy_topic}",
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (0, "")
    assert "\x1b" not in process.stdout
    assert "200" in process.stdout
    assert truth.contents(shop.bootstrap, copy_topic) == truth.contents(shop.bootstrap, shop.topic)
    truth.delete_topic(shop.bootstrap, copy_topic)

    process = run(shop.spark, "verify", "--repo", shop.folder, "--json")
    assert (process.returncode, process.stderr) == (0, "")
    result = event(process, "result")
    assert (result["missing"], result["changed"], result["damaged"]) == (0, 0, 0)
    assert result["ok"] > 2


@pytest.fixture
def cli(spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Commands whose captured output includes what libraries print."""
    for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
        monkeypatch.delenv(name)
    return Commands(capfd, spark)


def test_wrong_usage_and_unknown_names_are_refused(cli: Commands, shop: Shop, tmp_path: Path) -> None:
    destination_flags = ["--bootstrap-server", shop.bootstrap, "--repo", tmp_path / "other"]
    exit_code, stdout, stderr = cli.run("backup", "topics", shop.topic + "x", *destination_flags)
    assert (exit_code, stdout) == (3, "")
    assert shop.topic in stderr
    restore_flags = ["--repo", shop.folder, "--to", f"dir:{tmp_path / 'out'}"]
    assert "no-such-topic" in cli.fails(3, "restore", "topics", "no-such-topic", *restore_flags)
    for select in ("SELECT * FROM read_csv('/etc/passwd')", "DROP TABLE files", "SELECT", "SELECT 1 AS one"):
        exit_code, stdout, stderr = cli.run("restore", "topics", "--select", select, *restore_flags)
        assert (exit_code, stdout) == (2, ""), (select, stderr)
    cli.fails(3, "restore", "topics", "--select", "SELECT * FROM files WHERE scope = 'x'", *restore_flags)
    restore_to_time = ("restore", "topics", shop.topic, *restore_flags, "--to-time")
    cli.fails(2, *restore_to_time, "soon")
    assert "covered until" in cli.fails(5, *restore_to_time, "2999-01-01")
    assert not (tmp_path / "out").exists()


def test_a_secret_on_the_command_line_is_refused(cli: Commands, tmp_path: Path) -> None:
    exit_code, stdout, stderr = cli.run(
        "backup", "topics", "orders", "--bootstrap-server", "127.0.0.1:9", "--repo", tmp_path / "backups",
        "-X", f"sasl.password={SECRET}",
    )  # fmt: skip
    assert (exit_code, stdout) == (2, "")
    assert SECRET not in stderr


def test_a_first_backup_and_its_restore_need_no_java(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    commands, repo_flags = Commands(capsys), ("--repo", str(tmp_path / "new"))
    broker_flags = ("--bootstrap-server", shop.bootstrap, "--groups", "none")
    exit_code, _, stderr = commands.run("backup", "topics", shop.topic, *broker_flags, *repo_flags)
    assert exit_code == 0, stderr
    exit_code, stdout, stderr = commands.run(
        "sql", "SELECT runner, entries FROM backups", "--json", *repo_flags
    )
    assert (exit_code, parse_lines(stdout)) == (0, [{"runner": "local", "entries": len(RECORDS)}]), stderr
    exit_code, _, stderr = commands.run(
        "restore", "topics", shop.topic, "--to", f"dir:{tmp_path}/out", *repo_flags
    )
    assert exit_code == 0, stderr
