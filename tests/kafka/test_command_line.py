"""The command line as a person meets it: processes of its own, a real broker, real exit codes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

from lakebackup.lease import Lease
from lakebackup.storage import open_storage
from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SECRET = "hunter2-do-not-show"
ROWS = [
    Record(
        i % 2, b"key %d" % i, None if i % 5 == 0 else b"value %d" % i, (("h", b"1"),), 1_600_000_000_000 + i
    )
    for i in range(200)
]
Make = Callable[..., str]


@dataclass(frozen=True)
class Shop:
    """A topic and where its backups are; `backup` is what `lakebackup backup topics --json` said."""

    bootstrap: str
    topic: str
    folder: Path
    backup: subprocess.CompletedProcess[str]

    def result(self) -> dict[str, Any]:
        return event(self.backup, "result")


def lakebackup(*arguments: str | Path, seconds: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, its output a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "lakebackup_jobs.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env={k: v for k, v in os.environ.items() if not k.startswith("LAKEBACKUP_")} | env,
    )


def event(done: subprocess.CompletedProcess[str], kind: str) -> dict[str, Any]:
    (found,) = (line for line in map(json.loads, done.stdout.splitlines()) if line["event"] == kind)
    assert isinstance(found, dict)
    return found


def lists(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def shop(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A topic backed up by a process that was given a secret."""
    folder = tmp_path_factory.mktemp("shop")
    name = f"shop-{folder.name}-{os.getpid()}"
    truth.create_topic(broker.bootstrap, name, 2, retention_ms="-1")
    truth.produce(broker.bootstrap, name, ROWS)
    properties = folder / "client.properties"
    # Not asked for by this broker, so the client takes it along and the run goes through.
    properties.write_text(f"bootstrap.servers={broker.bootstrap}\nsasl.password={SECRET}\n")
    done = lakebackup(
        "backup", "topics", name, "--to", folder / "backups", "--kafka-config", properties, "--json",
        "--note", "the first", "--groups", "none",  # other tests' groups live on the same broker
    )  # fmt: skip
    yield Shop(broker.bootstrap, name, folder / "backups", done)
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


def test_looking_needs_no_java(shop: Shop) -> None:
    backup = shop.result()["backup_id"]

    def told(*arguments: str) -> str:
        command = [sys.executable, "-m", "lakebackup_jobs.cli", *arguments, "--from", str(shop.folder)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PATH": "", "HOME": "/nowhere"},
        )
        assert (done.returncode, done.stderr) == (0, ""), arguments
        return done.stdout

    (listed,) = lists(told("list", "--json"))
    assert (listed["backup_id"], listed["entries"], listed["note"]) == (backup, 200, "the first")
    (shown,) = lists(told("show", backup[:20], "--json"))
    assert [(t["scope"], t["entries"]) for t in shown["topics"]] == [(shop.topic, 200)]
    files = lists(told("files", backup, "--json"))
    assert sum(file["entries"] for file in files) == 200
    for file in files:
        assert (shop.folder / file["path"]).stat().st_size == file["bytes"]
    asked = told(
        "sql", "SELECT region, sum(entries) AS n FROM files GROUP BY region ORDER BY region", "--csv"
    )
    assert asked == "region,n\n0,100\n1,100\n"
    planned = lists(told("restore", "topics", shop.topic, "--to", "dir:/nowhere/out", "--dry-run", "--json"))
    assert planned[-1]["topics"][0]["entries"] == 200
    # No client configuration: planning into Kafka asks the cluster, and starts no Java either.
    target = f"kafka://{shop.bootstrap}"
    text = told("restore", "topics", shop.topic, "--to", target, "--map", f"{shop.topic}=new", "--dry-run")
    assert "SELECT" in text


def test_restore_and_verify_into_pipes_tell_only_what_came_of_it(shop: Shop, broker: Broker) -> None:
    copy = f"{shop.topic}-copy"
    done = lakebackup(
        "restore", "topics", shop.topic, "--from", shop.folder, "--to", f"kafka://{shop.bootstrap}",
        "--map", f"{shop.topic}={copy}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "200" in done.stdout
    assert truth.contents(shop.bootstrap, copy) == truth.contents(shop.bootstrap, shop.topic)
    truth.delete_topic(shop.bootstrap, copy)

    done = lakebackup("verify", "--from", shop.folder, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = event(done, "result")
    assert (found["missing"], found["changed"], found["damaged"]) == (0, 0, 0)
    assert found["ok"] > 2


@pytest.fixture
def cli(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process, on the session there is; gives its exit code and what it printed."""
    for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(a) for a in arguments], spark=spark)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def test_a_differential_and_a_damaged_file(
    cli: Callable[..., tuple[int, str, str]], topic: Make, broker: Broker, tmp_path: Path
) -> None:
    name, folder = topic("cli"), tmp_path / "backups"
    backup = ["backup", "topics", name, "--bootstrap-servers", broker.bootstrap, "--to", folder]
    backup += ["--groups", "none"]  # other tests' groups live on the same broker
    truth.produce(broker.bootstrap, name, [r for r in ROWS if r.partition == 0])
    code, out, _ = cli(*backup, "--dry-run", "--json")
    assert (code, lists(out)[-1]["offsets"]) == (0, 100)
    assert not folder.exists()
    assert cli(*backup)[0] == 0
    truth.produce(broker.bootstrap, name, [r for r in ROWS if r.partition == 0][:7])
    code, out, _ = cli(*backup, "--json")
    assert (code, lists(out)[-1]["kind"], lists(out)[-1]["entries"]) == (0, "differential", 7)

    (first, _) = sorted(folder.glob("*/*/topics/*/partition=0/*.data"))
    whole = first.read_bytes()
    first.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, out, err = cli("restore", "topics", name, "--from", folder, "--to", f"dir:{tmp_path / 'out'}")
    assert (code, out) == (7, "")
    assert first.name in err
    code, out, err = cli("verify", "--from", folder)
    assert code == 7
    assert "Not whole: 1 changed" in err
    code, _, err = cli("restore", "topics", name, "--from", folder, "--to", f"dir:{tmp_path / 'out'}")
    assert code == 5
    assert "when it was last checked" in err


def test_usage_and_names_that_are_wrong(
    cli: Callable[..., tuple[int, str, str]], shop: Shop, tmp_path: Path
) -> None:
    to = ["--bootstrap-servers", shop.bootstrap, "--to", tmp_path / "other"]
    code, out, err = cli("backup", "topics", shop.topic + "x", *to)
    assert (code, out) == (3, "")
    assert shop.topic in err
    out_dir = ["--from", shop.folder, "--to", f"dir:{tmp_path / 'out'}"]
    code, _, err = cli("restore", "topics", "no-such-topic", *out_dir)
    assert code == 3
    assert "no-such-topic" in err
    for select in ("SELECT * FROM read_csv('/etc/passwd')", "DROP TABLE files", "SELECT", "SELECT 1 AS one"):
        code, out, err = cli("restore", "topics", "--select", select, *out_dir)
        assert (code, out) == (2, ""), (select, err)
    code, _, err = cli("restore", "topics", "--select", "SELECT * FROM files WHERE scope = 'x'", *out_dir)
    assert code == 3, err
    assert cli("restore", "topics", shop.topic, "--to-time", "soon", *out_dir)[0] == 2
    code, _, err = cli("restore", "topics", shop.topic, "--to-time", "2999-01-01", *out_dir)
    assert code == 5
    assert "covered until" in err
    assert not (tmp_path / "out").exists()


def test_another_run_on_the_same_source_is_busy(cli: Callable[..., tuple[int, str, str]], shop: Shop) -> None:
    source = shop.result()["source"]
    with Lease.acquire(open_storage(str(shop.folder)), f"source-{source}", "another run", ttl_s=60):
        code, out, err = cli(
            "backup", "topics", shop.topic, "--bootstrap-servers", shop.bootstrap, "--to", shop.folder
        )
    assert (code, out) == (8, "")
    assert "another run" in err


def test_a_server_that_is_not_there_is_told_soon(tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(f"sasl.password={SECRET}\n")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        started = time.monotonic()
        done = lakebackup(
            "backup", "topics", "orders", "--bootstrap-servers", address, "--to", tmp_path / "backups",
            "--json", "--kafka-config", properties,
        )  # fmt: skip
    assert time.monotonic() - started < 45
    assert (done.returncode, done.stdout) == (6, "")
    (error,) = lists(done.stderr)
    assert (error["error"], error["exit_code"]) == ("EnvironmentProblem", 6)
    assert f"No broker answers at {address}" in error["message"]
    assert "--bootstrap-server" in error["hint"]
    assert SECRET not in done.stderr
    assert not (tmp_path / "backups").exists()


def test_a_secret_on_the_command_line_is_refused(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, err = cli(
        "backup", "topics", "orders", "--bootstrap-servers", "127.0.0.1:9", "--to", tmp_path / "backups",
        "-X", f"sasl.password={SECRET}",
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert SECRET not in err
