"""Backup, restore and verify of a snapshot's files, compared with other tools and a loop in plain Python."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from tests.benchmarks import measure, ours, peers
from tests.benchmarks.data import DataSet, records
from tests.benchmarks.measure import MeasuringError, Run, Sample, Samples, attempt, progress
from tests.benchmarks.ours import COLD, WARM, Session
from tests.benchmarks.report import phases, table
from tests.benchmarks.topics import size

FOLDERS = 20
CHANGED = 100  # one file in a hundred is changed
# The number of files, their size, and whether they are text, which compresses to about a fifth, or random.
SETS = {
    "20,000 files of 100 kB": (20_000, 100_000, False),
    "20,000 files of 100 kB, text": (20_000, 100_000, True),
    "200,000 files of 1 kB": (200_000, 1_000, False),
    "200,000 files of 1 kB, text": (200_000, 1_000, True),
}
_TEXT_BYTES = 4 << 20
PLAIN = "stat, sha256 and copy in Python"
BEGIN, BACKUP, RESTORE, VERIFY = "begin", "backup", "restore", "verify"
COMMANDS = {
    BEGIN: ["catalog", "init", "--repo", "{place}"],
    BACKUP: ["backup", "snapshot", "{source}", "--source", "files", "--repo", "{place}"],
    RESTORE: ["restore", "snapshot", "--repo", "{place}", "--to", "{target}"],
    VERIFY: ["verify", "--repo", "{place}"],
}
UNCOMPRESSED = {**COMMANDS, BACKUP: [*COMMANDS[BACKUP], "--codec", "none"]}
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
    """A backup tool with its command lines. `{source}`, `{place}` and `{target}` are folders.

    `{place}` is the destination of backups. The first backup creates it before the measured command runs.
    """

    run: Run
    words: Mapping[str, Sequence[str]]

    def step(self, step: str, source: Path, destination: Path, target: Path) -> Sample | str:
        """Run one step. Returns its sample, with the bytes that it added to the destination."""
        if step == BACKUP and BEGIN in self.words and not destination.exists():
            self._run(BEGIN, source, destination, target)
        bytes_before, sample = size(destination), self._run(step, source, destination, target)
        return (
            replace(sample, written_bytes=size(destination) - bytes_before)
            if isinstance(sample, Sample)
            else sample
        )

    def _run(self, step: str, source: Path, destination: Path, target: Path) -> Sample | str:
        return self.run(
            [word.format(source=source, place=destination, target=target) for word in self.words[step]]
        )


def tools(folder: Path, session: Session | None = None) -> dict[str, Tool]:
    """Return all tools, with a warm lakebackup if there is a session. Settings and log are in `folder`."""
    log = folder / "command.log"
    os.environ.update(RESTIC_PASSWORD="benchmark", KOPIA_PASSWORD="benchmark")
    os.environ["KOPIA_CONFIG_PATH"] = str(folder / "kopia.config")
    return {
        **({WARM: Tool(session.run, COMMANDS)} if session else {}),
        **({f"{WARM}, --codec none": Tool(session.run, UNCOMPRESSED)} if session else {}),
        COLD: Tool(ours.cold(log), COMMANDS),
        **{name: Tool(peers.command(log), words) for name, words in _PEERS.items()},
    }


def snapshots(session: Session, folder: Path, runs: int, scale: float) -> str:
    """Return Markdown for each set of files: a first backup, one after a change of one file in a hundred, one
    without changes, a verify and a restore."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for name, (count, file_bytes, is_text) in SETS.items():
        source, contents = folder / "source" / "files", Contents(file_bytes, is_text)
        files = make(source, round(count * scale), contents)
        tables_by_step = Comparison(tools(folder, session), source, files, contents, folder).rounds(runs)
        sections += [f"#### {name}: {step}\n\n{text}" for step, text in tables_by_step.items()]
        shutil.rmtree(source.parent)
    return "\n\n".join(sections)


class Contents:
    """The contents of files of one size: text of the events that are the records of topics, or random."""

    def __init__(self, file_bytes: int, is_text: bool = False) -> None:
        self.each = file_bytes
        self._rng = random.Random(7)
        values = (value + b"\n" for _, value in records(DataSet("files", 0, 200)))
        self._text = b"".join(islice(values, _TEXT_BYTES // 200)) if is_text else b""

    def next(self) -> bytes:
        """Return the contents of the next file."""
        if not self._text:
            return self._rng.randbytes(self.each)
        start = self._rng.randrange(len(self._text) - self.each)
        return self._text[start : start + self.each]


def make(source: Path, count: int, contents: Contents) -> list[Path]:
    """Write `count` files, and return their paths."""
    files = []
    for number in range(count):
        folder = source / f"{number % FOLDERS:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{number:06d}.sst")
        files[-1].write_bytes(contents.next())
    return files


@dataclass(frozen=True)
class Comparison:
    """One set of files, backed up, verified and restored by all tools in turn."""

    tools: dict[str, Tool]
    source: Path
    files: list[Path]
    contents: Contents
    folder: Path
    samples: dict[str, Samples[str]] = field(default_factory=dict)

    def rounds(self, runs: int) -> dict[str, str]:
        """Run the rounds. Returns Markdown by step."""
        rng = random.Random(11)
        for number in range(1 - measure.UNCOUNTED, runs + 1):
            progress(f"round {number}")
            if number <= 1:
                self.samples.clear()
            self._step("first backup", BACKUP)
            for file in rng.sample(self.files, len(self.files) // CHANGED):
                file.write_bytes(self.contents.next())
            self._step("one file in a hundred changed", BACKUP)
            self._step("nothing changed", BACKUP)
            self._step("verify", VERIFY)
            self._step("restore", RESTORE)
            for name in self.tools:
                shutil.rmtree(self._destination(name), ignore_errors=True)
        return {
            step: "\n\n".join(filter(None, [table(tool_samples, WARM), phases(tool_samples[WARM])]))
            for step, tool_samples in self.samples.items()
        }

    def _step(self, title: str, step: str) -> None:
        for name, tool in self.tools.items():
            if step not in tool.words:
                continue
            sample = attempt(
                f"  {title}, {name}", partial(self._measure, tool, step, self._destination(name))
            )
            self.samples.setdefault(title, {}).setdefault(name, []).append(sample)

    def _measure(self, tool: Tool, step: str, destination: Path) -> Sample | str:
        target = self.folder / "restored"
        shutil.rmtree(target, ignore_errors=True)
        sample = tool.step(step, self.source, destination, target)
        if step == RESTORE and isinstance(sample, Sample):
            restored_count = sum(file.stat().st_size == self.contents.each for file in target.rglob("*.sst"))
            if restored_count != len(self.files):
                raise MeasuringError(
                    f"{restored_count} files were restored to {target}, not {len(self.files)}"
                )
        return sample

    def _destination(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-").replace(",", "")
