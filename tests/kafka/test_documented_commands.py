"""The first hour of the documentation: every command of the pages quickstart and how-to, in their order.

They run in one folder, against a real broker. What stands below a command on the page is in what it prints.

Worth its half minute: these are the commands that people type first.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.command_line import Commands

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("quickstart.md", "how-to.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What needs an index of packages is in the tests of the wheel.
ELSEWHERE = ("python3 -m venv", "pip install")


class Step(NamedTuple):
    """A command of a page, and the lines that stand below it."""

    page: str
    command: str
    shown: list[str]


def steps(page: str) -> Iterator[Step]:
    for block in BLOCK.findall((DOCS / page).read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.strip().splitlines()
            yield Step(page, command, shown)


def test_every_command_works_as_written(
    broker: Broker, cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"orders-{time.time_ns()}"
    at = 1_700_000_000_000
    rows = [Record(i % 2, b"customer-%d" % (i % 9), b"value %d" % i, (), at + i) for i in range(90)]
    truth.create_topic(broker.bootstrap, name, 2)
    truth.produce(broker.bootstrap, name, rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    moment = datetime.fromtimestamp((at + 50) / 1000, UTC).isoformat()
    done = set()
    for page in PAGES:
        for step in steps(page):
            command = step.command.replace("localhost:9092", broker.bootstrap).replace("14:05", moment)
            command = re.sub(r"\borders(?=[-=' |]|$)", name, command)
            printed = run(command, cli, monkeypatch)
            for line in step.shown:
                assert line.replace("orders", name) in printed, (step, printed)
            done.add(command.split()[0])
    assert {"export", "lakebackup", "mkdir", "echo"} < done
    there = truth.contents(broker.bootstrap, name)
    assert truth.contents(broker.bootstrap, f"{name}-restored") == there
    assert truth.contents(broker.bootstrap, f"{name}-moved") == there
    assert sum(map(len, truth.contents(broker.bootstrap, f"{name}-1405").values())) == 51
    assert (tmp_path / "db-restored").is_dir()
    assert (tmp_path / "report.html").stat().st_size > 1000


def run(command: str, cli: Commands, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command of a page prints; it ends with 0, or `status` with the code of its state."""
    if command.startswith(ELSEWHERE):
        return ""
    if command.startswith("export "):
        key, _, value = command.removeprefix("export ").partition("=")
        monkeypatch.setenv(key, os.path.expandvars(value))
        return ""
    words = shlex.split(command)
    if words[0] != "lakebackup":
        return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
    code, out, err = cli.run(*words[1:])
    assert code == 0 or (words[1] == "status" and code == 4), (command, out, err)
    return out + err
