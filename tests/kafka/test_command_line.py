"""The command line as a person meets it: a real broker, real exit codes, and output into pipes.

Commands run in this process, on the session there is; processes of their own are in tests/unit/jobs/cli,
test_connect_jobs.py and test_secured.py.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
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
ROWS = [
    Record(
        i % 2, b"key %d" % i, None if i % 5 == 0 else b"value %d" % i, (("h", b"1"),), 1_600_000_000_000 + i
    )
    for i in range(200)
]
Make = Callable[..., str]


Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Shop:
    """A topic and where its backups are; `backup` is what `lakebackup backup topics --json` said."""

    bootstrap: str
    topic: str
    folder: Path
    backup: Done
    spark: SparkSession

    def result(self) -> dict[str, Any]:
        return event(self.backup, "result")


def run(spark: SparkSession, *arguments: str | Path) -> Done:
    """Runs a command in this process, on the session there is."""
    words, out, err = [str(a) for a in arguments], io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
            patch.delenv(name)
        code = main(words, spark=spark)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def event(done: Done, kind: str) -> dict[str, Any]:
    (found,) = (line for line in map(json.loads, done.stdout.splitlines()) if line["event"] == kind)
    assert isinstance(found, dict)
    return found


def lists(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A topic backed up by a command that was given a secret."""
    folder = tmp_path_factory.mktemp("shop")
    name = f"shop-{folder.name}-{os.getpid()}"
    truth.create_topic(broker.bootstrap, name, 2, retention_ms="-1")
    truth.produce(broker.bootstrap, name, ROWS)
    # Not asked for by this broker, so the client takes it along and the run goes through.
    client = f"bootstrap.servers={broker.bootstrap}\nsasl.password={SECRET}\n"
    properties = private_file(folder / "client.properties", client.encode())
    done = run(
        spark, "backup", "topics", name, "--repo", folder / "backups", "--kafka-config", properties, "--json",
        "--note", "the first", "--groups", "none",  # other tests' groups live on the same broker
    )  # fmt: skip
    yield Shop(broker.bootstrap, name, folder / "backups", done, spark)
    truth.delete_topic(broker.bootstrap, name)


def test_backup_as_json_is_events_and_one_result(shop: Shop) -> None:
    done = shop.backup
    assert (done.returncode, done.stderr) == (0, "")
    events = [line["event"] for line in lists(done.stdout)]
    assert events[0] == "start"
    assert events[-1] == "result"
    assert set(events) <= {"start", "progress", "result"}
    result = shop.result()
    assert (result["kind"], result["entries"], result["gaps"]) == ("full", 200, 0)


def test_no_secret_is_told_or_stored(shop: Shop) -> None:
    assert SECRET not in shop.backup.stdout + shop.backup.stderr
    holding = [p for p in shop.folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    assert holding == []


# Commands one behind the other in one process, each one's output between its own lines.
IN_TURN = """
import json, sys
from lakebackup_jobs.cli import main
for arguments in json.load(sys.stdin):
    code = main(arguments)
    print(end="\\0")
    if code:
        sys.exit(code)
"""


def test_looking_needs_no_java(shop: Shop) -> None:
    backup = shop.result()["backup_id"]
    count = "SELECT region, sum(entries) AS n FROM files GROUP BY region ORDER BY region"
    restore = ["restore", "topics", shop.topic, "--dry-run", "--to"]
    commands = [
        ["list", "--json"],
        ["show", backup[:20], "--json"],
        ["files", backup, "--json"],
        ["sql", count, "--csv"],
        [*restore, "dir:/nowhere/out", "--json"],
        # No client configuration: planning into Kafka asks the cluster, and starts no Java either.
        [*restore, f"kafka://{shop.bootstrap}", "--map", f"{shop.topic}=new", "--explain"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN],
        input=json.dumps([[*command, "--repo", str(shop.folder)] for command in commands]),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "", "HOME": "/nowhere"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    *told, rest = done.stdout.split("\0")
    assert (len(told), rest) == (len(commands), "")
    (listed,) = lists(told[0])
    assert (listed["backup_id"], listed["entries"], listed["note"]) == (backup, 200, "the first")
    (shown,) = lists(told[1])
    assert [(t["scope"], t["entries"]) for t in shown["topics"]] == [(shop.topic, 200)]
    files = lists(told[2])
    assert sum(file["entries"] for file in files) == 200
    for file in files:
        assert (shop.folder / file["path"]).stat().st_size == file["bytes"]
    assert told[3] == "region,n\n0,100\n1,100\n"
    assert lists(told[4])[-1]["topics"][0]["entries"] == 200
    assert "SELECT" in told[5]


def test_restore_and_verify_into_pipes_tell_only_what_came_of_it(shop: Shop, broker: Broker) -> None:
    copy = f"{shop.topic}-copy"
    done = run(
        shop.spark, "restore", "topics", shop.topic, "--repo", shop.folder, "--to", f"kafka://{shop.bootstrap}",
        "--map", f"{shop.topic}={copy}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "200" in done.stdout
    assert truth.contents(shop.bootstrap, copy) == truth.contents(shop.bootstrap, shop.topic)
    truth.delete_topic(shop.bootstrap, copy)

    done = run(shop.spark, "verify", "--repo", shop.folder, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = event(done, "result")
    assert (found["missing"], found["changed"], found["damaged"]) == (0, 0, 0)
    assert found["ok"] > 2


@pytest.fixture
def cli(spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Takes what libraries print too."""
    for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
        monkeypatch.delenv(name)
    return Commands(capfd, spark)


@pytest.mark.long
def test_a_differential_and_a_damaged_file(cli: Commands, shop: Shop, topic: Make, tmp_path: Path) -> None:
    name, folder = topic("cli"), tmp_path / "backups"
    truth.produce(shop.bootstrap, name, [r for r in ROWS if r.partition == 0][:7])
    backup = ["backup", "topics", name, "--bootstrap-server", shop.bootstrap, "--repo", folder]
    backup += ["--groups", "none"]  # other tests' groups live on the same broker
    code, out, _ = cli.run(*backup, "--dry-run", "--json")
    assert (code, lists(out)[-1]["offsets"]) == (0, 7)
    assert not folder.exists()
    shutil.copytree(shop.folder, folder)
    code, out, _ = cli.run(*backup, "--json")
    assert (code, lists(out)[-1]["kind"], lists(out)[-1]["entries"]) == (0, "differential", 7)

    (first,) = folder.glob(f"*/*/topics/{shop.topic}/partition=0/*.data")
    whole = first.read_bytes()
    first.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    restore = ["restore", "topics", shop.topic, "--repo", folder, "--to", f"dir:{tmp_path / 'out'}"]
    code, out, err = cli.run(*restore)
    assert (code, out) == (7, "")
    assert first.name in err
    assert "Stored files are not intact: 1 changed" in cli.fails(7, "verify", "--repo", folder)
    assert "when it was last checked" in cli.fails(5, *restore)


def test_usage_and_names_that_are_wrong(cli: Commands, shop: Shop, tmp_path: Path) -> None:
    to = ["--bootstrap-server", shop.bootstrap, "--repo", tmp_path / "other"]
    code, out, err = cli.run("backup", "topics", shop.topic + "x", *to)
    assert (code, out) == (3, "")
    assert shop.topic in err
    out_dir = ["--repo", shop.folder, "--to", f"dir:{tmp_path / 'out'}"]
    assert "no-such-topic" in cli.fails(3, "restore", "topics", "no-such-topic", *out_dir)
    for select in ("SELECT * FROM read_csv('/etc/passwd')", "DROP TABLE files", "SELECT", "SELECT 1 AS one"):
        code, out, err = cli.run("restore", "topics", "--select", select, *out_dir)
        assert (code, out) == (2, ""), (select, err)
    cli.fails(3, "restore", "topics", "--select", "SELECT * FROM files WHERE scope = 'x'", *out_dir)
    to_time = ("restore", "topics", shop.topic, *out_dir, "--to-time")
    cli.fails(2, *to_time, "soon")
    assert "covered until" in cli.fails(5, *to_time, "2999-01-01")
    assert not (tmp_path / "out").exists()


def test_a_secret_on_the_command_line_is_refused(cli: Commands, tmp_path: Path) -> None:
    code, out, err = cli.run(
        "backup", "topics", "orders", "--bootstrap-server", "127.0.0.1:9", "--repo", tmp_path / "backups",
        "-X", f"sasl.password={SECRET}",
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert SECRET not in err


def test_a_first_backup_and_its_restore_need_no_java(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    commands, repo = Commands(capsys), ("--repo", str(tmp_path / "new"))
    broker = ("--bootstrap-server", shop.bootstrap, "--groups", "none")
    code, _, err = commands.run("backup", "topics", shop.topic, *broker, *repo)
    assert code == 0, err
    code, out, err = commands.run("sql", "SELECT runner, entries FROM backups", "--json", *repo)
    assert (code, lists(out)) == (0, [{"runner": "local", "entries": len(ROWS)}]), err
    code, _, err = commands.run("restore", "topics", shop.topic, "--to", f"dir:{tmp_path}/out", *repo)
    assert code == 0, err
