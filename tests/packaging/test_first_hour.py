"""The quickstart where nothing of this project is installed: one shell runs the page's commands unchanged,
with the extras that the page names, against the tests' broker.

tests/kafka/test_documented_commands.py runs it with the how-tos in the tests' own environment each time; this
one shows that a wheel and its extras have all that the page needs. Long: a gigabyte is installed.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.documented import Orders, check
from tests.support.wheels import run, skip_without_index

if TYPE_CHECKING:
    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.long, pytest.mark.kafka]

MARK = "== what {} ended with: "


def test_the_quickstart_works_in_an_empty_environment(
    broker: Broker, wheel: Path, constraints: Path, tmp_path: Path
) -> None:
    orders = Orders.on(broker.bootstrap)
    steps = list(orders.steps("quickstart.md"))
    assert steps[0].command.startswith("python3 -m venv")
    # What a command says and prints comes in its order, and after it the code that it ended with.
    lines = [f"cd '{tmp_path}'", "exec 2>&1"]
    for number, step in enumerate(steps):
        lines += [step.command, f'echo "{MARK.format(number)}$?"']
    page = tmp_path / "page.sh"
    page.write_text("\n".join(lines), "utf-8")
    # The interpreter that the tests' environment was made of, without what is installed there.
    path = os.pathsep.join([f"{sys.base_prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"])
    links = f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}"
    left = run("sh", page, PATH=path, PIP_CONSTRAINT=constraints, PIP_FIND_LINKS=links).stdout
    print(left)  # what a person sees in this hour
    for number, step in enumerate(steps):
        ended = re.compile(rf"^{MARK.format(number)}(\d+)\n", re.MULTILINE)
        printed, code, left = ended.split(left, maxsplit=1)
        if step.command.startswith("pip "):
            skip_without_index(int(code), printed)
        check(step, int(code), printed)
    assert orders.contents("-restored") == orders.contents()
    assert (tmp_path / "lakebackup/bin/lakebackup").is_file()
    assert (tmp_path / "backups/catalog").is_dir()
