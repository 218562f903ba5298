"""The first hour of the documentation: every command of the pages quickstart and how-to, in their order.

They run in one folder, against a real broker. What stands below a command on the page is in what it prints.

Worth its half minute: these are the commands that people type first.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support.documented import Orders, check

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.command_line import Commands

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAGES = ("quickstart.md", "how-to.md")
# What needs an index of packages is in tests/packaging.
ELSEWHERE = ("python3 -m venv", "pip install")


def test_every_command_works_as_written(
    broker: Broker, cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders.on(broker.bootstrap)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    done = set()
    for page in PAGES:
        for step in orders.steps(page):
            check(step, *run(step.command, cli, monkeypatch))
            done.add(step.command.split()[0])
    assert {"export", "lakebackup", "mkdir", "echo"} < done
    there = orders.contents()
    assert orders.contents("-restored") == there
    assert orders.contents("-moved") == there
    assert sum(map(len, orders.contents("-1405").values())) == 51
    assert (tmp_path / "db-restored").is_dir()
    assert (tmp_path / "report.html").stat().st_size > 1000


def run(command: str, cli: Commands, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code of a command of a page, and what it prints."""
    if command.startswith(ELSEWHERE):
        return 0, ""
    if command.startswith("export "):
        key, _, value = command.removeprefix("export ").partition("=")
        monkeypatch.setenv(key, os.path.expandvars(value))
        return 0, ""
    words = shlex.split(command)
    if words[0] != "lakebackup":
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr
    code, out, err = cli.run(*words[1:])
    return code, out + err
