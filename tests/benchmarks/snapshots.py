"""Backup and restore of a snapshot's files, beside restic, rclone, rsync and a loop in plain Python."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.benchmarks.measure import Cost, MeasuringError, of_command, progress
from tests.benchmarks.ours import COMMAND, Session
from tests.benchmarks.report import Sample, phases, table
from tests.benchmarks.topics import COLD, WARM, phases_of, size

FOLDERS = 20
CHANGED = 100  # one file of so many
SETS = {"20,000 files of 100 kB": (20_000, 100_000), "200,000 files of 1 kB": (200_000, 1_000)}
_PASSWORD = {"RESTIC_PASSWORD": "benchmark"}
PLAIN = "stat, sha256 and copy in Python"


class Tool(Protocol):
    """What backs a folder up; a second backup goes to the same place. Phases are seconds by name."""

    def backup(self, source: Path, place: Path) -> tuple[Cost, dict[str, float]]: ...

    def restore(self, place: Path, target: Path) -> tuple[Cost, dict[str, float]]: ...


class Warm:
    """lakebackup in a session that lives."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def backup(self, source: Path, place: Path) -> tuple[Cost, dict[str, float]]:
        """`backup snapshot`; to make the catalog is not counted."""
        if not place.exists():
            self._session.ask("init", destination=str(place))
        cost, said = self._session.measured("backup_snapshot", source=str(source), destination=str(place))
        return cost, phases_of(said)

    def restore(self, place: Path, target: Path) -> tuple[Cost, dict[str, float]]:
        """`restore snapshot` of the newest."""
        cost, said = self._session.measured("restore_snapshot", destination=str(place), target=str(target))
        return cost, phases_of(said)


class Commands:
    """A tool by its command lines, one behind the other; `{source}`, `{place}` and `{target}` are folders."""

    def __init__(
        self, log: Path, backup: list[str], restore: list[str], begin: list[str] | None = None
    ) -> None:
        self._log, self._backup, self._restore, self._begin = log, backup, restore, begin

    def backup(self, source: Path, place: Path) -> tuple[Cost, dict[str, float]]:
        """The first backup to a place begins with what makes the place; that is not counted."""
        if self._begin and not place.exists():
            self._run(self._begin, place=place)
        return self._run(self._backup, source=source, place=place), {}

    def restore(self, place: Path, target: Path) -> tuple[Cost, dict[str, float]]:
        """All of it."""
        return self._run(self._restore, place=place, target=target), {}

    def _run(self, words: list[str], **folders: Path) -> Cost:
        return of_command([word.format(**folders) for word in words], self._log)


def snapshots(session: Session, folder: Path, runs: int, scale: float) -> str:
    """Markdown: for each set of files a first backup, one with a file in a hundred changed, a restore, and
    one where nothing is new."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(_PASSWORD)
    tools = _tools(session, folder / "command.log")
    told = []
    for name, (count, each) in SETS.items():
        source = folder / "source" / "files"
        files = _make(source, round(count * scale), each)
        found = Comparison(tools, source, files, each, folder).rounds(runs)
        told += [f"#### {name}: {step}\n\n{text}" for step, text in found.items()]
        shutil.rmtree(source.parent)
    return "\n\n".join(told)


def _tools(session: Session, log: Path) -> dict[str, Tool]:
    plain = [sys.executable, "-m", "tests.benchmarks.plain_snapshots"]
    tools: dict[str, Tool] = {
        WARM: Warm(session),
        COLD: Commands(
            log,
            [*COMMAND, "backup", "snapshot", "{source}", "--to", "{place}"],
            [*COMMAND, "restore", "snapshot", "--from", "{place}", "--to", "{target}"],
            [*COMMAND, "catalog", "init", "--from", "{place}"],
        ),
        PLAIN: Commands(log, [*plain, "{source}", "{place}"], ["cp", "-a", "{place}", "{target}"]),
    }
    peers = {
        "rsync": Commands(
            log, ["rsync", "-a", "{source}/", "{place}/"], ["rsync", "-a", "{place}/", "{target}/"]
        ),
        "rclone": Commands(
            log, ["rclone", "sync", "{source}", "{place}"], ["rclone", "copy", "{place}", "{target}"]
        ),
        "restic": Commands(
            log,
            ["restic", "-r", "{place}", "backup", "-q", "{source}"],
            ["restic", "-r", "{place}", "restore", "-q", "latest", "--target", "{target}"],
            ["restic", "init", "-r", "{place}"],
        ),
    }
    return tools | {name: tool for name, tool in peers.items() if shutil.which(name)}


def _make(source: Path, count: int, each: int) -> list[Path]:
    chance = random.Random(7)
    files = []
    for number in range(count):
        folder = source / f"{number % FOLDERS:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{number:06d}.sst")
        files[-1].write_bytes(chance.randbytes(each))
    return files


@dataclass(frozen=True)
class Comparison:
    """One set of files, backed up and restored by all tools in turn."""

    tools: dict[str, Tool]
    source: Path
    files: list[Path]
    each: int
    folder: Path
    samples: dict[str, dict[str, list[Sample | None]]] = field(default_factory=dict)

    def rounds(self, runs: int) -> dict[str, str]:
        """Markdown by step. The first round is not counted: workers start, compiled code is loaded."""
        chance = random.Random(11)
        for number in range(-1, runs):
            progress(f"round {number + 1}")
            self._step("first backup", self._backup, counted=number >= 0)
            for file in chance.sample(self.files, len(self.files) // CHANGED):
                file.write_bytes(chance.randbytes(self.each))
            self._step("one file in a hundred changed", self._backup, counted=number >= 0)
            self._step("nothing changed", self._backup, counted=number >= 0)
            self._step("restore", self._restore, counted=number >= 0)
            for name in self.tools:
                shutil.rmtree(self._place(name))
        return {
            step: "\n\n".join(filter(None, [table(found, WARM), phases(found[WARM])]))
            for step, found in self.samples.items()
        }

    def _step(self, step: str, act: Callable[[str], tuple[Cost, dict[str, float]]], *, counted: bool) -> None:
        for name in self.tools:
            before = size(self._place(name))
            cost, said = act(name)
            progress(f"  {step}, {name}: {cost.seconds:.2f} s")
            if counted:
                sample = Sample(cost, size(self._place(name)) - before, said)
                self.samples.setdefault(step, {}).setdefault(name, []).append(sample)

    def _backup(self, name: str) -> tuple[Cost, dict[str, float]]:
        return self.tools[name].backup(self.source, self._place(name))

    def _restore(self, name: str) -> tuple[Cost, dict[str, float]]:
        target = self.folder / "restored"
        done = self.tools[name].restore(self._place(name), target)
        back = sum(found.stat().st_size == self.each for found in target.rglob("*.sst"))
        if back != len(self.files):
            raise MeasuringError(f"{name} restored {back} files, not {len(self.files)}")
        shutil.rmtree(target)
        return done

    def _place(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-").replace(",", "")
