"""Backup, restore and verify of a snapshot's files, beside other tools and a loop in plain Python."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tests.benchmarks import measure, ours, peers
from tests.benchmarks.measure import MeasuringError, Run, Sample, Samples, attempt, progress
from tests.benchmarks.ours import COLD, WARM, Session
from tests.benchmarks.report import phases, table
from tests.benchmarks.topics import size

FOLDERS = 20
CHANGED = 100  # one file of so many
SETS = {"20,000 files of 100 kB": (20_000, 100_000), "200,000 files of 1 kB": (200_000, 1_000)}
PLAIN = "stat, sha256 and copy in Python"
BEGIN, BACKUP, RESTORE, VERIFY = "begin", "backup", "restore", "verify"
OURS = {
    BEGIN: ["catalog", "init", "--repo", "{place}"],
    BACKUP: ["backup", "snapshot", "{source}", "--source", "files", "--repo", "{place}"],
    RESTORE: ["restore", "snapshot", "--repo", "{place}", "--to", "{target}"],
    VERIFY: ["verify", "--repo", "{place}"],
}
_PYTHON = [sys.executable, "-m", "tests.benchmarks.plain_snapshots"]
_PEERS: dict[str, dict[str, list[str]]] = {
    PLAIN: {BACKUP: [*_PYTHON, "{source}", "{place}"], RESTORE: ["cp", "-a", "{place}", "{target}"]},
    "rsync": {
        BACKUP: ["rsync", "-a", "{source}/", "{place}/"],
        RESTORE: ["rsync", "-a", "{place}/", "{target}/"],
    },
    "rclone": {
        BACKUP: ["rclone", "sync", "{source}", "{place}"],
        RESTORE: ["rclone", "copy", "{place}", "{target}"],
    },
    "restic": {
        BEGIN: ["restic", "-r", "{place}", "init"],
        BACKUP: ["restic", "-r", "{place}", "backup", "-q", "{source}"],
        RESTORE: ["restic", "-r", "{place}", "restore", "-q", "latest", "--target", "{target}"],
        VERIFY: ["restic", "-r", "{place}", "check", "-q", "--read-data"],
    },
    "kopia": {
        BEGIN: ["kopia", "repository", "create", "filesystem", "--path", "{place}"],
        BACKUP: ["kopia", "snapshot", "create", "--no-progress", "{source}"],
        RESTORE: ["kopia", "restore", "--no-progress", "{source}", "{target}"],
        VERIFY: ["kopia", "snapshot", "verify", "--no-progress", "--verify-files-percent=100"],
    },
    "sha256sum": {VERIFY: ["find", "{source}", "-type", "f", "-exec", "sha256sum", "{{}}", "+"]},
}


@dataclass(frozen=True)
class Tool:
    """What backs a folder up, by its command lines: `{source}`, `{place}` and `{target}` are folders.

    The first backup to a place begins with what makes the place; that is not counted.
    """

    run: Run
    words: Mapping[str, Sequence[str]]

    def step(self, step: str, source: Path, place: Path, target: Path) -> Sample | str:
        """One step, and what it left at the place."""
        if step == BACKUP and BEGIN in self.words and not place.exists():
            self._run(BEGIN, source, place, target)
        before, sample = size(place), self._run(step, source, place, target)
        return replace(sample, written=size(place) - before) if isinstance(sample, Sample) else sample

    def _run(self, step: str, source: Path, place: Path, target: Path) -> Sample | str:
        return self.run([word.format(source=source, place=place, target=target) for word in self.words[step]])


def tools(folder: Path, session: Session | None = None) -> dict[str, Tool]:
    """All tools, ours warm in the session if there is one; they keep their settings in the folder."""
    log = folder / "command.log"
    os.environ.update(RESTIC_PASSWORD="benchmark", KOPIA_PASSWORD="benchmark")
    os.environ["KOPIA_CONFIG_PATH"] = str(folder / "kopia.config")
    return {
        **({WARM: Tool(session.run, OURS)} if session else {}),
        COLD: Tool(ours.cold(log), OURS),
        **{name: Tool(peers.command(log), words) for name, words in _PEERS.items()},
    }


def snapshots(session: Session, folder: Path, runs: int, scale: float) -> str:
    """Markdown: for each set of files a first backup, one with a file in a hundred changed, one where nothing
    is new, a verify and a restore."""
    folder.mkdir(parents=True, exist_ok=True)
    told = []
    for name, (count, each) in SETS.items():
        source = folder / "source" / "files"
        files = make(source, round(count * scale), each)
        found = Comparison(tools(folder, session), source, files, each, folder).rounds(runs)
        told += [f"#### {name}: {step}\n\n{text}" for step, text in found.items()]
        shutil.rmtree(source.parent)
    return "\n\n".join(told)


def make(source: Path, count: int, each: int) -> list[Path]:
    """So many files of so many bytes that compress to nothing smaller."""
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
    """One set of files, backed up, verified and restored by all tools in turn."""

    tools: dict[str, Tool]
    source: Path
    files: list[Path]
    each: int
    folder: Path
    samples: dict[str, Samples[str]] = field(default_factory=dict)

    def rounds(self, runs: int) -> dict[str, str]:
        """Markdown by step."""
        chance = random.Random(11)
        for number in range(1 - measure.UNCOUNTED, runs + 1):
            progress(f"round {number}")
            if number <= 1:
                self.samples.clear()
            self._step("first backup", BACKUP)
            for file in chance.sample(self.files, len(self.files) // CHANGED):
                file.write_bytes(chance.randbytes(self.each))
            self._step("one file in a hundred changed", BACKUP)
            self._step("nothing changed", BACKUP)
            self._step("verify", VERIFY)
            self._step("restore", RESTORE)
            for name in self.tools:
                shutil.rmtree(self._place(name), ignore_errors=True)
        return {
            step: "\n\n".join(filter(None, [table(found, WARM), phases(found[WARM])]))
            for step, found in self.samples.items()
        }

    def _step(self, title: str, step: str) -> None:
        for name, tool in self.tools.items():
            if step not in tool.words:
                continue
            sample = attempt(f"  {title}, {name}", partial(self._stepped, tool, step, self._place(name)))
            self.samples.setdefault(title, {}).setdefault(name, []).append(sample)

    def _stepped(self, tool: Tool, step: str, place: Path) -> Sample | str:
        target = self.folder / "restored"
        shutil.rmtree(target, ignore_errors=True)
        sample = tool.step(step, self.source, place, target)
        if step == RESTORE and isinstance(sample, Sample):
            back = sum(found.stat().st_size == self.each for found in target.rglob("*.sst"))
            if back != len(self.files):
                raise MeasuringError(f"{back} files were restored to {target}, not {len(self.files)}")
        return sample

    def _place(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-").replace(",", "")
