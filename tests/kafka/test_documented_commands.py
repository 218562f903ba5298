"""Runs every command of the documentation's pages quickstart and how-to, in the order of the pages.

The commands run in one folder, against a real broker. Each must print the lines that the page shows below it.

The test takes half a minute. It is worth it: these are the commands that people type first.
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
# Commands that need a package index are tested in tests/packaging.
ELSEWHERE = ("python3 -m venv", "pip install")


def test_every_command_works_as_written(
    broker: Broker, cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders.create(broker.bootstrap)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    programs = set()
    for page in PAGES:
        for step in orders.steps(page):
            check(step, *run(step.command, cli, monkeypatch))
            programs.add(step.command.split()[0])
    assert {"export", "lakebackup", "mkdir", "echo"} < programs
    original_records = orders.contents()
    assert orders.contents("-restored") == original_records
    assert orders.contents("-moved") == original_records
    assert sum(map(len, orders.contents("-1405").values())) == 51
    assert (tmp_path / "db-restored").is_dir()
    assert (tmp_path / "report.html").stat().st_size > 1000


def run(command: str, cli: Commands, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run a command of a page. Returns its exit code and everything that it prints."""
    if command.startswith(ELSEWHERE):
        return 0, ""
    if command.startswith("export "):
        key, _, value = command.removeprefix("export ").partition("=")
        monkeypatch.setenv(key, os.path.expandvars(value))
        return 0, ""
    words = shlex.split(command)
    if words[0] != "lakebackup":
        process = subprocess.run(command, shell=True, capture_output=True, text=True)
        return process.returncode, process.stdout + process.stderr
    exit_code, stdout, stderr = cli.run(*words[1:])
    return exit_code, stdout + stderr
