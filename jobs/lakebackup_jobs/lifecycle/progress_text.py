"""What a run is doing, as one line of text.

The line names the phase, and then what is known of it: the amount done, its total and share, the rate, the
elapsed time and the remaining time. If the line is too long, its least important parts are dropped first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.filesize import decimal

from lakebackup_jobs.runtime.java.downloads import Download
from lakebackup_jobs.runtime.terminal_text import visible

RATE_WINDOW_S = 30.0
"""The rate is measured over these last seconds, so that a fast or slow start does not distort the remaining
time."""
_LEAST_RATE_S = 1.0
_PHASES: Mapping[str, str] = {
    "backup": "backing up",
    "check": "checking",
    "compact": "compacting",
    "export": "exporting",
    "follow": "following",
    "import": "importing",
    "log": "capturing",
    "look for ends of transactions": "looking for the ends of transactions in",
    "merge": "merging",
    "optimize": "optimizing",
    "prune": "pruning",
    "rebuild": "rebuilding",
    "restore": "restoring",
    "log truncate": "truncating",
    "verify": "verifying",
}
"""The labels of the stages, by their names in JSON events."""
_OBJECTS: Mapping[str, str] = {"records": "topics", "events": "change logs", "messages": "queues"}
"""What a phase works on, by the unit that it counts. Any other unit stands for itself."""
# The order in which parts are dropped from a line that is too long.
_DROP_ORDER = ("extra", "rate", "elapsed", "amount", "left", "share")


@dataclass(slots=True)
class _Phase:
    """A phase of the work: the unit that it counts, its totals, and samples of (time in s, amount done)."""

    label: str
    since: float
    unit: str = ""
    total: int | None = None
    total_bytes: int | None = None
    count: int = 0
    done_bytes: int = 0
    samples: tuple[tuple[float, int], ...] = ()

    @property
    def by_bytes(self) -> bool:
        return self.total_bytes is not None or not self.unit

    @property
    def amount(self) -> int:
        return self.done_bytes if self.by_bytes else self.count

    @property
    def total_amount(self) -> int | None:
        """The total; None if it is unknown, or exceeded: a phase may find more work than was planned."""
        total = self.total_bytes if self.by_bytes else self.total
        return total if total and total >= self.amount else None

    def update(self, count: int, done_bytes: int, now_s: float) -> None:
        self.count, self.done_bytes = count, done_bytes
        recent = [sample for sample in self.samples if sample[0] >= now_s - RATE_WINDOW_S]
        self.samples = (*recent, (now_s, self.amount)) if self.amount else ((now_s, 0),)

    def rate(self, now_s: float) -> float | None:
        """The amount per second; None while it is not known, and when nothing was done for some time."""
        if not self.samples:
            return None
        (first_time, first_amount), (_, latest) = self.samples[0], self.samples[-1]
        is_known = now_s - first_time >= _LEAST_RATE_S and latest > first_amount
        return (latest - first_amount) / (now_s - first_time) if is_known else None

    def parts(self, now_s: float) -> dict[str, str]:
        """The parts of the line after the label, by name."""
        parts: dict[str, str] = {}
        total, rate = self.total_amount, self.rate(now_s)
        if self.amount or total:
            parts["amount"] = self._bytes(total) if self.by_bytes else self._count(total)
        if total:
            parts["share"] = f"{100 * self.amount // total}%"
        if self.by_bytes and self.unit and self.count:
            parts["extra"] = self._count(self.total if self.total and self.total >= self.count else None)
        elif not self.by_bytes and self.done_bytes:
            parts["extra"] = _size(self.done_bytes)
        if rate:
            parts["rate"] = f"{_size(round(rate))}/s" if self.by_bytes else f"{rate:,.0f} {self.unit}/s"
        parts["elapsed"] = f"{duration(now_s - self.since)} elapsed"
        if rate and total and total > self.amount:
            parts["left"] = f"{duration((total - self.amount) / rate)} left"
        return parts

    def _count(self, total: int | None) -> str:
        return f"{self.count:,}{f' of {total:,}' if total else ''} {self.unit}"

    def _bytes(self, total: int | None) -> str:
        amount_text = _size(self.done_bytes)
        if total is None:
            return amount_text
        number, _, unit = amount_text.partition(" ")
        total_size = _size(total)
        return f"{number if total_size.endswith(f' {unit}') else amount_text} of {total_size}"


class ProgressText:
    """The line of a run. The run reports to this object what it does. `clock` returns seconds, such as
    `time.monotonic`.

    The line shows a download, if there is one; otherwise what the run waits for; otherwise the stage.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage: _Phase | None = None
        self._waiting: _Phase | None = None
        self._download: _Phase | None = None

    def start(self, total: int | None, total_bytes: int | None, stage: str, unit: str) -> None:
        """Begin a stage; see `Reporter.start`."""
        label = " ".join(word for word in (_PHASES.get(stage, stage), _OBJECTS.get(unit, unit)) if word)
        self._stage = _Phase(label, self._clock(), unit, total, total_bytes)
        self._waiting = None

    def update(self, count: int, done_bytes: int) -> None:
        """Set how much of the stage is done. The first amount ends a wait."""
        if self._stage is not None:
            self._stage.update(count, done_bytes, self._clock())
            if count or done_bytes:
                self._waiting = None

    def wait(self, reason: str) -> None:
        """Begin to wait for something of unknown duration; `reason` is the text."""
        self._waiting = _Phase(reason, self._clock())

    def download(self, state: Download | None) -> None:
        """Begin or continue a download, or end it (None)."""
        if state is None:
            self._download = None
            return
        if self._download is None:
            self._download = _Phase("", self._clock(), "files", state.total_files, state.total_bytes)
        self._download.label = f"downloading {state.name}"
        self._download.update(state.files, state.bytes, self._clock())

    @property
    def is_downloading(self) -> bool:
        return self._download is not None

    @property
    def has_total(self) -> bool:
        """Whether the total is known; endless runs have none."""
        phase = self._phase
        return phase is not None and phase.total_amount is not None

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1; None if the total is not known."""
        phase = self._phase
        return phase.amount / phase.total_amount if phase is not None and phase.total_amount else None

    def text(self, width: int | None = None) -> str:
        """The line, in at most `width` columns of a terminal."""
        phase = self._phase
        if phase is None:
            return ""
        label, parts = visible(phase.label), phase.parts(self._clock())
        order = [name for name in ("amount", "share", "extra", "rate", "elapsed", "left") if name in parts]
        line = _join(label, [parts[name] for name in order])
        if width is None:
            return line

        for name in _DROP_ORDER:
            if cell_len(line) <= width:
                return line
            order = [part for part in order if part != name]
            line = _join(label, [parts[part] for part in order])
        return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"

    @property
    def _phase(self) -> _Phase | None:
        return self._download or self._waiting or self._stage


def _join(label: str, parts: list[str]) -> str:
    return f"{label}: {', '.join(parts)}" if parts else label


def duration(seconds: float) -> str:
    """A time span as text, such as `14 s`, `2 min 5 s` or `3 h 20 min`."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    if rounded < 86_400:
        return f"{rounded // 3600} h {rounded % 3600 // 60} min"
    return f"{rounded // 86_400} d {rounded % 86_400 // 3600} h"


def _size(size: int) -> str:
    return decimal(size)
