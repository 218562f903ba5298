"""The package without its extras: what still works, and which extra a command names. The tests run commands
in a process of their own, in which the libraries of the extras cannot be imported.

tests/packaging installs the wheel into an empty environment; this costs two seconds and runs each time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import takewhile
from pathlib import Path

import pytest
from tests.support.unpacked import unpack

from lakebackup_jobs.cli import extras

ROOT = Path(__file__).parents[4]
DESTINATION = ROOT / "tests/walkthroughs/data/destination-of-0.1.tar.gz"
ABSENT = sorted(extras._EXTRAS)
PROGRAM = """
import json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in %r:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from lakebackup_jobs.cli import main
for command in json.load(sys.stdin):
    print("==", main(command), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("old")
    with DESTINATION.open("rb") as packed:
        unpack(packed, root)
    return root / "backups"


def run(folder: Path, *commands: list[str]) -> tuple[list[int], str, str]:
    """Run commands; returns their exit codes, their output, and their standard error."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM % ABSENT],
        input=json.dumps(commands), capture_output=True, text=True, check=True,
        env={**os.environ, "LAKEBACKUP_REPO": str(folder)},
    )  # fmt: skip
    codes = [int(line[3:]) for line in process.stdout.splitlines() if line.startswith("== ")]
    return codes, process.stdout, process.stderr


@pytest.mark.long
def test_basic_commands_need_no_extra(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    codes, output, err = run(
        folder,
        ["list"], ["status"], ["files", "latest"], ["show", "latest"], ["config"], ["policy", "show"],
        ["due"],
        ["sql", "SELECT scope, count(*) AS files FROM files GROUP BY scope"],
        ["report"], ["report", "--html", str(page)],
        ["policy", "set", "lab", "--keep-daily", "7"], ["hold", "latest", "--forever", "--reason", "test"],
    )  # fmt: skip
    assert codes == [0, 4] + [0] * 10, err
    assert "social.snapshot" in output
    assert page.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["backup", "topics", "a", "--bootstrap-server", "none:1"], "kafka"),
        (["backup", "snapshot", "."], "spark"),
        (["sql", "--repo", "s3://bucket/backups", "SELECT 1"], "s3"),
        (["serve", "mcp"], "agents"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(folder: Path, command: list[str], extra: str) -> None:
    codes, _, err = run(folder, command)
    assert codes == [6], err
    assert f"pip install 'lakebackup[{extra}]'" in err
    assert "is not installed: this command needs" in err


@pytest.mark.long
def test_every_example_of_the_help_names_the_extra_that_it_lacks(tmp_path: Path) -> None:
    """Twenty CPU seconds: runs each command of the reference, except servers, once without any extra."""
    with DESTINATION.open("rb") as packed:
        unpack(packed, tmp_path)
    pages = [page.read_text("utf-8") for page in (ROOT / "docs/reference/cli").glob("*.md")]
    lines = {line for page in pages for line in re.findall(r"^lakebackup (.*)", page, re.MULTILINE)}
    examples = [shlex.split(line) for line in sorted(lines)]
    # Pipes and redirections are cut off. Servers do not end, and the folder for --metrics may not exist here.
    plain = [[*takewhile(lambda word: word not in ("|", ">", "<"), words)] for words in examples]
    commands = [words for words in plain if not {"serve", "--metrics"} & set(words)]
    assert len(commands) > 100
    program = PROGRAM.replace("    print(", "    print('==', command, file=sys.stderr)\n    print(")
    process = subprocess.run(
        [sys.executable, "-c", program % ABSENT],
        input=json.dumps(commands), capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "LAKEBACKUP_REPO": str(tmp_path / "backups")},
    )  # fmt: skip
    codes = [int(line[3:]) for line in process.stdout.splitlines() if line.startswith("== ")]
    texts = process.stderr.split("== [")[1:]
    assert len(codes) == len(texts) == len(commands)
    assert set(codes) <= {0, 2, 3, 4, 6}
    for code, text in zip(codes, texts, strict=True):
        assert code != 6 or "pip install 'lakebackup[" in text, text
        assert "make setup" not in text


def test_a_module_of_no_extra_is_a_defect() -> None:
    assert extras.missing(ModuleNotFoundError("no", name="lakebackup_jobs.nothing")) is None
    assert extras.missing(ModuleNotFoundError("no")) is None


def test_every_library_of_an_extra_is_known() -> None:
    names = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    groups = {"notebooks", "all", "dev"}
    assert set(extras._EXTRAS.values()) | groups == set(names) == set(extras._CONTENTS) | groups
