"""The quickstart where nothing of this project is installed: one shell runs the page's commands unchanged,
with the extras that the page names, against the tests' broker.

tests/kafka/test_documented_commands.py runs the quickstart and the how-tos in the tests' environment. This
test shows that the wheel and its extras contain everything that the page needs. Long: it installs a gigabyte.
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
    orders = Orders.create(broker.bootstrap)
    steps = list(orders.steps("quickstart.md"))
    assert steps[0].command.startswith("python3 -m venv")
    # Each command's output, with its errors in order, and after it the exit code.
    lines = [f"cd '{tmp_path}'", "exec 2>&1"]
    for number, step in enumerate(steps):
        lines += [step.command, f'echo "{MARK.format(number)}$?"']
    page = tmp_path / "page.sh"
    page.write_text("\n".join(lines), "utf-8")
    # The interpreter from which the tests' environment was made, without the packages of that environment.
    path = os.pathsep.join([f"{sys.base_prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"])
    links = f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}"
    output = run("sh", page, PATH=path, PIP_CONSTRAINT=constraints, PIP_FIND_LINKS=links).stdout
    print(output)  # what a person sees in this hour
    for number, step in enumerate(steps):
        end_mark = re.compile(rf"^{MARK.format(number)}(\d+)\n", re.MULTILINE)
        printed, code, output = end_mark.split(output, maxsplit=1)
        if step.command.startswith("pip "):
            skip_without_index(int(code), printed)
        check(step, int(code), printed)
    assert orders.contents("-restored") == orders.contents()
    assert (tmp_path / "lakebackup/bin/lakebackup").is_file()
    assert (tmp_path / "backups/catalog").is_dir()
