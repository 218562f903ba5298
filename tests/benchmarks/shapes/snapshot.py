"""A snapshot of many small files that is backed up again and again, after a few of them changed."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path

from tests.benchmarks import ours
from tests.benchmarks.measure import MeasuringError, Sample, progress
from tests.benchmarks.report import markdown
from tests.benchmarks.snapshots import BACKUP, COMMANDS, RESTORE, VERIFY, Contents, make

FILES, FILE_BYTES, BACKUPS = 200_000, 1_000, 50
_CHANGED = 200  # one file in so many is changed before each backup
_SHOWN = (1, 2, 3, 10, 20, 30, 40, 50)


def many_backups(folder: Path, scale: float) -> str:
    """Return Markdown: what each of many backups of the same files costs, a verify and a restore."""
    folder.mkdir(parents=True)
    source, repo, target = folder / "source", folder / "repo", folder / "target"
    files = make(source, round(FILES * scale), Contents(FILE_BYTES))
    run, rng = ours.cold(folder / "command.log"), random.Random(11)

    def step(name: str) -> Sample:
        words = [word.format(source=source, place=repo, target=target) for word in COMMANDS[name]]
        sample = run(words)
        if isinstance(sample, str):
            raise MeasuringError(sample)
        progress(f"{name}: {sample}")
        return sample

    rows = []
    for number in range(1, BACKUPS + 1):
        if number > 1:
            for file in rng.sample(files, max(1, len(files) // _CHANGED)):
                file.write_bytes(rng.randbytes(FILE_BYTES))
        sample = step(BACKUP)
        if number in _SHOWN:
            rows.append(_row(f"backup {number}", sample))
    rows += [_row("`verify` of all", step(VERIFY)), _row("restore of the newest", step(RESTORE))]
    if _digests(source) != _digests(target / source.name):
        raise MeasuringError(f"the files in {target} are not those of {source}")
    shutil.rmtree(folder)
    changed = max(1, len(files) // _CHANGED)
    head = [
        f"{len(files):,} files, {changed:,} changed",
        "s",
        "CPU s",
        "tree, MB",
        "driver, MB",
        "a worker, MB",
    ]
    return markdown(head, rows)


def _row(name: str, sample: Sample) -> list[str]:
    cost = sample.cost
    megabytes = (cost.peak_bytes, cost.driver_bytes, cost.worker_bytes)
    return [
        name,
        f"{cost.seconds:.2f}",
        f"{cost.cpu_s:.2f}",
        *(f"{count / 1e6:.0f}" if count else "" for count in megabytes),
    ]


def _digests(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*.sst")
    }
