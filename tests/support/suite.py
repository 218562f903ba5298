"""A pytest plugin for runs of the whole suite: shared servers, shards, resuming, and the time of each test.

It is loaded by `-p tests.support.suite` (pyproject.toml), also in the processes of `pytest -n`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zlib
from collections import Counter, defaultdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.servers import Run

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_PASSED = pytest.StashKey[frozenset[str]]()
# Tests that take at least this many seconds are listed in the file of times.
_SLOW_FROM_S = 0.5
_SLOWEST = 20
# Tests write 10,000 small files and sync them, which is quicker in memory if there is room.
_MEMORY, _ROOM = Path("/dev/shm"), 6 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption("--shard", metavar="K/N", help="run the K-th of N parts")
    group.addoption("--resume", metavar="FILE", help="leave out what passed before, as noted in FILE")
    group.addoption("--times", metavar="FILE", help="write the time of each slow test; print a table by area")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.stash[_PASSED] = frozenset(config.workerinput["passed"])
        return
    if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None
    # Approvals that commands record belong to this run and not to the account's own state.
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="lakebackup-test-state-")
    resume = config.getoption("--resume")
    progress = Progress(Path(resume)) if resume else None
    config.stash[_PASSED] = progress.passed if progress else frozenset()
    config.pluginmanager.register(Suite(config, progress))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the passed tests on: all processes must collect the same tests, also one that starts late."""
    node.workerinput["passed"] = sorted(node.config.stash[_PASSED])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed, shard = config.stash[_PASSED], config.getoption("--shard")
    number, _, count = (shard or "1/1").partition("/")
    try:
        shard_index = range(1, int(count) + 1).index(int(number))
    except ValueError:
        raise pytest.UsageError(f"--shard {shard}: give it as 1/4") from None

    def is_selected(item: pytest.Item) -> bool:
        return item.nodeid not in passed and zlib.crc32(item.nodeid.encode()) % int(count) == shard_index

    dropped = [item for item in items if not is_selected(item)]
    if dropped:
        items[:] = [item for item in items if is_selected(item)]
        config.hook.pytest_deselected(items=dropped)


class Suite:
    """The plugin of the run's first process: it starts the servers and gets the report of every test."""

    def __init__(self, config: pytest.Config, progress: Progress | None) -> None:
        self._progress = progress
        self._times_file = config.getoption("--times")
        self._times: Counter[str] = Counter()
        self._failed: set[str] = set()
        self._servers = None if config.option.collectonly else Run()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._times[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)
        if self._progress and report.when == "teardown" and report.nodeid not in self._failed:
            self._progress.note(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if self._progress and exitstatus == pytest.ExitCode.OK:
            self._progress.clear()

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self._times_file:
            self._write(Path(self._times_file))
            for line in self._table():
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        if self._servers:
            self._servers.stop()

    def _write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        slow_tests = [(seconds, test) for test, seconds in self._times.items() if seconds >= _SLOW_FROM_S]
        file.write_text(
            "".join(f"{s:7.2f} {test}\n" for s, test in sorted(slow_tests, reverse=True)), "utf-8"
        )

    def _table(self) -> list[str]:
        """The seconds of each folder, and the slowest tests."""
        areas: defaultdict[str, list[float]] = defaultdict(list)
        for test, seconds in self._times.items():
            areas["/".join(test.split("/")[:2])].append(seconds)
        areas["all"] = list(self._times.values())
        return [
            f"{'area':20} {'tests':>6} {'seconds':>8} {'slowest':>8}",
            *(
                f"{area:20} {len(durations):6} {sum(durations):8.0f} {max(durations, default=0):8.1f}"
                for area, durations in sorted(areas.items(), key=lambda item: sum(item[1]))
            ),
            f"the {_SLOWEST} slowest (all from {_SLOW_FROM_S} s on: {self._times_file}):",
            *(f"{seconds:8.1f} {test}" for test, seconds in self._times.most_common(_SLOWEST)),
        ]


class Progress:
    """A file of the tests that passed in earlier runs of the same code; other code starts over."""

    def __init__(self, file: Path) -> None:
        self._file = file
        code = _code()
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        if lines[:1] != [code]:
            lines = [code]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{code}\n", "utf-8")
        self.passed = frozenset(lines[1:])

    def note(self, test: str) -> None:
        """Record that a test has passed."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{test}\n")

    def clear(self) -> None:
        """Forget everything, since all tests have passed: the next run starts over."""
        self._file.unlink(missing_ok=True)


def _code() -> str:
    """A hash of the code under test: the commit and the changes since."""
    commands = (["git", "rev-parse", "HEAD"], ["git", "diff", "HEAD"])
    outputs = [subprocess.run(command, capture_output=True, check=True).stdout for command in commands]
    return sha256(b"".join(outputs)).hexdigest()
